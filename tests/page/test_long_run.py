"""A run of 100,000 decisions, watched from begin to end: the browser's memory and work stay flat.

What is asserted is counted, not timed: bytes of its heap after a collection, nodes of its document,
bytes of an update. Frame times, which depend on the machine, are printed (pytest -s).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from conftest import wait_for
from playwright.sync_api import CDPSession, Page

HORIZON = 1_560_000
DECISIONS = 100_000
EARLY = 0.2
"""The share of the run after which it is measured first."""
WATCH = """
window.frames = []; window.sizes = [];
let last = performance.now();
const frame = (now) => { frames.push(now - last); last = now; requestAnimationFrame(frame); };
requestAnimationFrame(frame);
const Original = window.EventSource;
window.EventSource = class extends Original {
  constructor(url) {
    super(url);
    this.addEventListener("message", (event) => sizes.push(event.data.length));
  }
};
"""


def measure(page: Page, session: CDPSession) -> dict[str, float]:
    """Return what the page holds now, and what its last updates and frames were."""
    session.send("HeapProfiler.collectGarbage")
    metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    recent: dict[str, list[float]] = page.evaluate(
        "() => ({frames: frames.splice(0).slice(-200), sizes: sizes.splice(0).slice(-40)})"
    )
    return {
        "heap": metrics["JSHeapUsedSize"],
        "nodes": metrics["Nodes"],
        "update": max(recent["sizes"]),
        "frame": median(recent["frames"]),
    }


@pytest.mark.slow
def test_the_browser_stays_flat(serve: Callable[..., Any], page: Page, tmp_path: Path) -> None:
    page.set_default_timeout(1_800_000)
    page.add_init_script(WATCH)
    words = ("up", "tiny", "--policy", "jsq", "--seed", "1", "--broker", "builtin")
    out = tmp_path / "run"
    command = serve(*words, "--horizon", HORIZON, "--dashboard", "--out", out)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(command.link)
    page.wait_for_selector("#speed option", state="attached")
    page.select_option("#speed", "")
    wait_for(page, f"Number(d.time) > {EARLY * HORIZON}")
    early = measure(page, session)
    wait_for(page, f"Number(d.time) > {0.95 * HORIZON}")
    late = measure(page, session)
    wait_for(page, "d.live === 'false'")
    command.finish()
    record = out / "participants" / "agent" / "decisions-0000.csv"
    assert record.read_text().count("\n") > DECISIONS
    print(f"\nafter 20 %: {early}\nat the end: {late}")  # noqa: T201
    assert late["heap"] < 1.3 * early["heap"] + 2e6
    assert late["nodes"] < 1.2 * early["nodes"] + 200
    assert late["update"] < 2 * early["update"] + 10_000
