"""The page of a running testbed, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_for
from playwright.sync_api import Browser, Page
from support import make_run

from fogveil.protocol.identity import AGENT
from fogveil.testbed.privacy.inspect.recordings import read_recording

SPEEDS = [301.12345678, 502.87654321, 1003.55555511]
"""Planted: in these digits nothing else has them."""
START = ("up", "tiny", "--policy", "jsq", "--seed", "1", "--broker", "builtin", "--horizon", "600")
PLANTED = ("--set", f"fog.ipt={{profile=[{', '.join(map(str, SPEEDS))}]}}")


def settled(page: Page, record: Path) -> int:
    """Wait until what was under way has come through; return the lines of the agent's record."""
    lines = -1
    while (now := record.read_text().count("\n")) != lines:
        lines = now
        page.wait_for_timeout(700)
    return lines


def test_pause_step_and_the_end(serve: Callable[..., Any], page: Page, tmp_path: Path) -> None:
    """Paused, simulated time stands still for all; nothing is lost; the end equals the records."""
    out = tmp_path / "run"
    command = serve(*START, *PLANTED, "--dashboard", "--out", out)
    agents_traffic: list[str] = []
    page.on(
        "response",
        lambda answer: (
            agents_traffic.append(answer.text()) if answer.url.endswith("facts/agent") else None
        ),
    )
    page.goto(command.link)
    wait_for(page, "Number(d.time) > 0")
    page.click("#hold")
    wait_for(page, "d.held === 'true'")
    decisions = out / "participants" / AGENT / "decisions-0000.csv"
    lines = settled(page, decisions)
    before = page.evaluate("document.body.dataset.time")
    page.wait_for_timeout(1500)
    assert page.evaluate("document.body.dataset.time") == before
    assert decisions.read_text().count("\n") == lines

    page.click("#step")
    wait_for(page, f"Number(d.time) > {before}")
    assert settled(page, decisions) == lines + 1

    shown = set(page.eval_on_selector_all(".messages li", "all => all.map(li => li.dataset.wire)"))
    recorded = {
        crossing.payload.hex(" ")
        for name in ("agent", "fog-1", "fog-2", "fog-3")
        for crossing in read_recording(out / "participants" / name / "traffic.jsonl")
        if crossing.is_message
    }
    assert shown
    assert shown <= recorded, "the page shows messages that `fogveil inspect` does not"
    half = page.inner_html(".agent") + page.inner_html(".crossing .messages")
    hidden = page.inner_text(".private")
    for speed in SPEEDS:
        assert f"{speed:.8f}"[:6] not in half.replace(",", "")
        assert f"{speed:.4g}" in hidden.replace(",", "")
    assert agents_traffic
    assert not any(str(speed) in text for speed in SPEEDS for text in agents_traffic)

    page.select_option("#speed", "")
    page.click("#hold")
    wait_for(page, "d.live === 'false'")
    page.wait_for_selector(".run:not([data-run-hash=''])", state="attached")
    result = json.loads((out / "run.json").read_text())
    section = page.locator(".run").first
    assert float(section.get_attribute("data-fog-loop") or "nan") == result["summary"]["fog_loop"]
    assert section.get_attribute("data-run-hash") == result["run_hash"]
    embedded = make_run(
        "jsq", horizon=600, seed=1, disclosure="count", fog__ipt={"profile": SPEEDS}
    )
    assert result["run_hash"] == embedded.hash
    assert embedded.hash in command.finish()


def test_the_agents_stream_holds_no_secret(
    serve: Callable[..., Any], browser: Browser, tmp_path: Path
) -> None:
    """Whatever the agent's half is made of comes by a stream that has no private number in it."""
    command = serve(*START, *PLANTED, "--dashboard", "--out", tmp_path / "run")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.add_init_script(
        """window.streams = {};
        const Original = window.EventSource;
        window.EventSource = class extends Original {
          constructor(url) {
            super(url);
            (window.streams[url] = []);
            this.addEventListener("message", (event) => window.streams[url].push(event.data));
          }
        };"""
    )
    page.goto(command.link)
    page.wait_for_selector("#speed option", state="attached")
    page.select_option("#speed", "")
    wait_for(page, "d.live === 'false'")
    page.wait_for_selector(".run:not([data-run-hash=''])", state="attached")
    streams = page.evaluate("window.streams")
    agent = "".join(streams["events/agent"])
    private = "".join(streams["events/private"])
    context.close()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert str(record["summary"]["fog_loop"]) in private, "the streams were mixed up"
    for secret in (*map(str, SPEEDS), "utilisation", "fog_loop", "ipt", "lines"):
        assert secret not in agent


@pytest.mark.parametrize("policy", ["random", pytest.param("parl", marks=pytest.mark.slow)])
def test_pipelined_runs_step_by_single_decisions(
    serve: Callable[..., Any], page: Page, tmp_path: Path, policy: str
) -> None:
    """Windows of many decisions are cut while somebody watches, and the run stays the same."""
    scenario, horizon = ("paper", 60) if policy == "parl" else ("tiny", 600)
    words = ("up", scenario, "--policy", policy, "--seed", "1", "--broker", "builtin")
    command = serve(*words, "--horizon", horizon, "--dashboard", "--out", tmp_path / "run")
    page.goto(command.link)
    wait_for(page, "Number(d.time) > 0")
    page.click("#hold")
    wait_for(page, "d.held === 'true'")
    file = tmp_path / "run" / "participants" / AGENT / "decisions-0000.csv"
    for _ in range(2):
        lines = settled(page, file)
        before = page.evaluate("document.body.dataset.time")
        page.click("#step")
        wait_for(page, f"Number(d.time) > {before}")
        assert settled(page, file) == lines + 1
    page.select_option("#speed", "")
    page.click("#hold")
    wait_for(page, "d.live === 'false'")
    embedded = make_run(policy, scenario, horizon=horizon, seed=1, disclosure="count")
    assert embedded.hash in command.finish()
