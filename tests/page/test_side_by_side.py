"""Two testbeds on one page: the same workloads, held and released together."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import wait_for
from playwright.sync_api import Page
from support import make_run

from fogveil.protocol.identity import AGENT

TINY = ("up", "tiny", "--seed", "1", "--broker", "builtin", "--horizon", "600", "--dashboard")


def jobs(folder: Path) -> list[str]:
    """Return the jobs that were decided so far."""
    record = folder / "participants" / AGENT / "decisions-0000.csv"
    return [line.split(",")[0] for line in record.read_text().splitlines()[1:]]


def settled(page: Page, folders: list[Path]) -> list[list[str]]:
    """Wait until what was under way has come through."""
    before: list[list[str]] = []
    while (now := [jobs(folder) for folder in folders]) != before:
        before = now
        page.wait_for_timeout(700)
    return before


def test_two_testbeds_move_together(serve: Callable[..., Any], page: Page, tmp_path: Path) -> None:
    """A step is the same decision in both; both end as the embedded runs of their policies."""
    command = serve(*TINY, "--policy", "jsq,nearest", "--out", tmp_path)
    page.goto(command.link)
    wait_for(page, "Number(d.time) > 0")
    page.click("#hold")
    wait_for(page, "d.held === 'true'")
    folders = [tmp_path / "1-jsq", tmp_path / "2-nearest"]
    before = settled(page, folders)
    page.keyboard.press("ArrowRight")  # although a button has the focus
    page.wait_for_timeout(1500)
    after = settled(page, folders)
    for one, other in zip(before, after, strict=True):
        assert other[:-1] == one
    assert after[0][: len(after[1])] == after[1][: len(after[0])], "other workloads"
    assert page.locator(".run").count() == page.locator(".map canvas").count() == 2

    page.select_option("#speed", "")
    page.click("#hold")
    wait_for(page, "d.live === 'false'")
    printed = command.finish()
    for policy in ("jsq", "nearest"):
        embedded = make_run(policy, horizon=600, seed=1, disclosure="count")
        assert embedded.hash in printed


def test_if_one_testbed_fails_both_end(
    serve: Callable[..., Any], page: Page, tmp_path: Path
) -> None:
    """A lost provider ends the command with its name; the page shows where the run stood."""
    command = serve(*TINY, "--policy", "jsq,nearest", "--out", tmp_path, "--on-loss", "end")
    page.goto(command.link)
    wait_for(page, "Number(d.time) > 0")
    log = (tmp_path / "2-nearest" / "testbed.log").read_text()
    found = re.search(r"started fog-2 as process (\d+)", log)
    assert found
    os.kill(int(found.group(1)), signal.SIGKILL)
    assert command.process.wait(120) == 3
    assert "fog-2" in command.errors()
    wait_for(page, "d.failed === 'true'")
    assert "The run has failed" in page.inner_text("#notice")
