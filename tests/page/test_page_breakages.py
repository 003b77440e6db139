"""The page broken on purpose: the audit's check lets the page as it is pass, and notices each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fogveil.testbed.privacy.audit import page_check
from fogveil.testbed.privacy.audit.canaries import plant
from fogveil.testbed.privacy.audit.findings import Verdict
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

START = """
from fogveil.testbed.dashboard import halves, server, session
{breakage}
from fogveil.testbed.dashboard.process import main
main()
"""
BREAKAGES = {
    "as another site": "server.Gate._admits = lambda *_: True",
    "as another page": """
original = server.Gate._admits
def admits(self, request):
    return request.headers.get("origin") is not None or original(self, request)
server.Gate._admits = admits
""",
    "as the agent": "server.user_of_port = lambda _port: None",
    "the link for the second time": """
async def opened(self, request):
    return server.RedirectResponse(f"/{self._secret}/", 303)
server.PageServer._open = opened
""",
    "without the link": """
original = server.PageServer.__init__
def init(self, session):
    original(self, session)
    self._secret = "page"
server.PageServer.__init__ = init
""",
    "ipt of fog-1 found as text in the agent's half": """
original = halves.AgentHalf.at
def at(self, timeline, seen, now):
    return {**original(self, timeline, seen, now), "hint": SESSION[0].runs[0].private.facts()}
halves.AgentHalf.at = at
SESSION = []
made = session.Session.__init__
def init(self, *args):
    SESSION.append(self)
    made(self, *args)
session.Session.__init__ = init
""",
}
"""What is broken, by a part of what the audit says of it."""


def check(breakage: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> page_check.Finding:
    monkeypatch.setattr(
        page_check, "SERVER", [sys.executable, "-c", START.format(breakage=breakage)]
    )
    world = build_world(plant(load_scenario("tiny"), seed=5))
    return page_check.check_page(world, "jsq", folder)


def test_the_page_as_it_is_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = check("", tmp_path, monkeypatch)
    assert finding.verdict is Verdict.PASS, finding.details


@pytest.mark.parametrize("said", BREAKAGES)
def test_each_breakage_is_noticed(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = check(BREAKAGES[said], tmp_path, monkeypatch)
    assert finding.verdict is Verdict.FAIL
    assert any(said in fault for fault in finding.details), finding.details


def test_a_search_that_finds_nothing_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private half must show the planted secrets, or the search proves nothing."""
    breakage = "halves.PrivateHalf.facts = lambda _self: {}"
    finding = check(breakage, tmp_path, monkeypatch)
    assert finding.verdict is Verdict.NOT_SHOWN
