"""Pictures of the page of a run at the states that matter: `make docs-screenshots`.

Those that docs/dashboard.md shows are written to docs/images/dashboard, the others to
build/screenshots, to be looked at.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
SHOWN, OTHERS = ROOT / "docs" / "images" / "dashboard", ROOT / "build" / "screenshots"
IN_DOCS = ("load", "pair", "nodes-200-network")
FOGVEIL = [sys.executable, "-m", "fogveil.testbed.cli"]
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
PROJECTOR, PHONE = (1400, 1000), (390, 844)
BUSY = ("stress", "--rate", "100", "--seed", "1", "--set", "roles.fog=12")
WIDE = (
    *("stress", "--rate", "100", "--seed", "1", "--horizon", "600"),
    *("--set", "roles.fog=200", "--set", "topology.nodes=400", "--set", "roles.clusters=60"),
)
PATIENCE = 120_000
"""Milliseconds."""


class Studio:
    """A browser, and a folder with the runs that are photographed."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser, self._folder = browser, folder

    def run(self, name: str, *words: str) -> Path:
        """Make a run, once; return its folder."""
        folder = self._folder / name
        if not folder.exists():
            command = [*FOGVEIL, "run", *words, "--out", str(folder)]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        return folder

    def federated(self, policy: str) -> Path:
        """Return the recorded run of a policy on 12 Fog nodes."""
        words = ("--horizon", "4000", "--federated", "--record", "--policy", policy)
        return self.run(policy, *BUSY, *words)

    @contextmanager
    def page(
        self,
        *words: str | Path,
        colours: str = "light",
        size: tuple[int, int] = PROJECTOR,
        scale: float = 1,
    ) -> Iterator[tuple[Page, subprocess.Popen[str]]]:
        """Yield a browser's page of a command, and the command."""
        with subprocess.Popen(  # noqa: S603
            [*FOGVEIL, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as command:
            assert command.stdout
            lines = iter(command.stdout.readline, "")
            link = next(found.group(0) for line in lines if (found := re.search(r"http:\S+", line)))
            context = self._browser.new_context(
                viewport={"width": size[0], "height": size[1]},
                device_scale_factor=scale,
                color_scheme="dark" if colours == "dark" else "light",
            )
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            faults: list[str] = []
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.goto(link)
            page.wait_for_selector(".messages li, #training-now:not(:empty)")
            assert page.evaluate("document.styleSheets.length") == len(("uplot.css", "page.css"))
            yield page, command
            assert not faults, faults
            context.close()
            command.terminate()


def _replay(
    studio: Studio,
    path: Path,
    *policies: str,
    share: float,
    colours: str = "light",
    size: tuple[int, int] = PROJECTOR,
    below: bool = False,
) -> None:
    """Photograph recorded runs at a share of their time."""
    folders = [studio.federated(policy) for policy in policies]
    scale = 2 if size == PHONE else 1
    with studio.page("dashboard", *folders, colours=colours, size=size, scale=scale) as (page, _):
        _move(page, share)
        page.screenshot(path=path, full_page=below)


def _move(page: Page, share: float) -> None:
    """Move to a share of the horizon, or to the end, when the agent has inferred what it will."""
    page.wait_for_function("() => Number(document.getElementById('time').max) > 1")
    end = page.evaluate("Number(document.getElementById('time').max)")
    page.evaluate(f"wish({{time: {end}, held: true}})")
    page.wait_for_timeout(15_000)
    time = end if share == 1 else share * page.evaluate("facts.runs[0].horizon")
    page.evaluate(f"wish({{time: {time}, held: true}})")
    page.wait_for_timeout(1500)


def _wide(studio: Studio, path: Path, colours: str = "light", size: str = "first") -> None:
    """Photograph 200 Fog nodes."""
    folder = studio.run("wide", *WIDE, "--policy", "jsq")
    with studio.page("dashboard", folder, colours=colours) as (page, _):
        _move(page, 0.6)
        if size == "network":
            page.locator("#network").scroll_into_view_if_needed()
            page.evaluate("document.getElementById('network').scrollIntoView()")
            page.wait_for_timeout(500)
        page.screenshot(path=path)


def _loss(studio: Studio, path: Path) -> None:
    """Photograph a run that lost a provider."""
    out = studio.federated("jsq").with_name("loss")
    words = ("up", *BUSY, "--horizon", "2000", "--policy", "jsq", "--dashboard", "--out", out)
    with studio.page(*words) as (page, _):
        page.wait_for_function("() => Number(document.body.dataset.time) > 500")
        log = (out / "testbed.log").read_text(encoding="utf-8")
        found = re.search(r"started fog-7 as process (\d+)", log)
        assert found
        os.kill(int(found.group(1)), signal.SIGKILL)
        page.wait_for_function("() => document.body.dataset.failed === 'true'")
        page.wait_for_timeout(1000)
        page.screenshot(path=path)


def _training(studio: Studio, path: Path) -> None:
    """Photograph a training under way."""
    out = studio.federated("jsq").with_name("training")
    words = ["train", "tiny", "--agent", "parl", "--seed", "1", "--out", str(out)]
    with subprocess.Popen([*FOGVEIL, *words], stderr=subprocess.DEVNULL) as training:  # noqa: S603
        while not (out / "training.json").exists():
            assert training.poll() is None, "the training did not begin"
            time.sleep(0.2)
        with studio.page("dashboard", out) as (page, _):
            page.wait_for_timeout(60_000)
            page.screenshot(path=path)
        training.terminate()


SHOTS: dict[str, Callable[[Studio, Path], None]] = {
    "start": lambda studio, path: _replay(studio, path, "jsq", share=0.004),
    "load": lambda studio, path: _replay(studio, path, "jsq", share=0.6),
    "load-below": lambda studio, path: _replay(studio, path, "jsq", share=0.6, below=True),
    "load-dark": lambda studio, path: _replay(studio, path, "jsq", share=0.6, colours="dark"),
    "pair": lambda studio, path: _replay(studio, path, "jsq", "veil", share=0.6, colours="dark"),
    "pair-below": lambda studio, path: _replay(studio, path, "jsq", "veil", share=0.6, below=True),
    "end": lambda studio, path: _replay(studio, path, "veil", share=1.0),
    "phone": lambda studio, path: _replay(studio, path, "jsq", share=0.6, size=PHONE, below=True),
    "nodes-200": _wide,
    "nodes-200-dark": lambda studio, path: _wide(studio, path, "dark"),
    "nodes-200-network": lambda studio, path: _wide(studio, path, size="network"),
    "loss": _loss,
    "training": _training,
}


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SHOTS))
    parser.add_argument("--runs", type=Path, help="a folder for the runs, to take them once")
    chosen = parser.parse_args()
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        sys.exit("chromium is missing: install it (apt install chromium)")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=OPTIONS)
        studio = Studio(browser, chosen.runs or Path(temporary))
        for name in chosen.names or SHOTS:
            path = (SHOWN if name in IN_DOCS else OTHERS) / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            SHOTS[name](studio, path)
            print(f"written: {path}")
        browser.close()


if __name__ == "__main__":
    main()
