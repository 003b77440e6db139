"""A browser, and runs to show in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

FOGVEIL = [sys.executable, "-m", "fogveil.testbed.cli"]
OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]
PATIENCE = 120_000
"""Milliseconds that a busy machine may take."""


@pytest.fixture(scope="module")  # its event loop must not run while tests of other modules do
def browser() -> Iterator[Browser]:
    """Chromium, which must be there: these tests are not skipped."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "chromium is missing: install it (apt install chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own, on which nothing may go wrong."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    yield page
    context.close()
    assert not faults


class Command:
    """A command that serves a page."""

    def __init__(self, *words: Any, folder: Path) -> None:
        self._err = folder / "stderr.txt"
        with self._err.open("wb") as err, (folder / "stdout.txt").open("wb") as out:
            self.process = subprocess.Popen(
                [*FOGVEIL, *map(str, words)], stdout=out, stderr=err, stdin=subprocess.DEVNULL
            )
        self.out = folder / "stdout.txt"
        self.link = self._link()

    def _link(self) -> str:
        deadline = time.monotonic() + PATIENCE / 1000
        while time.monotonic() < deadline:
            said = self._err.read_text() + self.out.read_text()
            if found := re.search(r"http://\S+", said):
                return found.group(0)
            assert self.process.poll() is None, said
            time.sleep(0.05)
        raise AssertionError("no link")

    def errors(self) -> str:
        """Return what was printed to stderr so far."""
        return self._err.read_text()

    def finish(self) -> str:
        """Wait for the end, and return what was printed."""
        code = self.process.wait(PATIENCE / 1000)
        assert code == 0, self._err.read_text()
        return self.out.read_text()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start commands that serve pages, and end them."""
    commands: list[Command] = []

    def start(*words: Any) -> Command:
        folder = tmp_path / f"command-{len(commands)}"
        folder.mkdir()
        commands.append(Command(*words, folder=folder))
        return commands[-1]

    yield start
    for command in commands:
        command.process.terminate()
        command.process.wait()


def wait_for(page: Page, condition: str) -> None:
    """Wait until a condition on the page's `body.dataset` holds."""
    page.wait_for_function(f"() => {{ const d = document.body.dataset; return {condition}; }}")
