"""The page broken on purpose: each breakage lets one attack through, and only that one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support import make_world
from test_page_access import open_page, request

import fogveil.api as fogveil

SPEEDS = [301.12345678, 502.87654321, 1003.55555511]
SERVE = """
import asyncio, sys
from pathlib import Path
from fogveil.testbed.dashboard import halves, server
from fogveil.testbed.dashboard.process import serve
from fogveil.testbed.dashboard.session import Session
exec(sys.argv[2])
async def ended(): await asyncio.to_thread(sys.stdin.read)
session = Session([Path(sys.argv[1])])
asyncio.run(serve(session, frozenset(), lambda link: print(link, flush=True), ended()))
"""
BREAKAGES = {
    "": "",
    "another host": "server.Gate._admits = lambda *_: True",
    "the link twice": """
async def opened(self, request):
    return server.RedirectResponse(f"/{self._secret}/", 303)
server.PageServer._open = opened
""",
    "no secret": """
original = server.PageServer.__init__
def init(self, session):
    original(self, session)
    self._secret = "page"
server.PageServer.__init__ = init
""",
    "speeds in the agent's stream": """
original = halves.AgentHalf.at
def at(self, timeline, seen, now):
    return {**original(self, timeline, seen, now), "hint": session.runs[0].private.facts()}
halves.AgentHalf.at = at
""",
}
"""What is broken, by the attack that it lets through."""


@contextmanager
def served(folder: Path, breakage: str) -> Iterator[str]:
    """Serve the page of a run with some of its code changed; yield its link."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder), breakage],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()
        assert server.wait() == 0


def successful_attacks(link: str) -> set[str]:
    """Try every attack on a page; return those that get something."""
    found = set()
    if request(link, "/page/")[0] == 200:
        found.add("no secret")
    page = open_page(link)
    if request(link, urlsplit(link).path)[0] == 303:
        found.add("the link twice")
    if request(link, f"{page}facts/private", Host="evil.example")[0] == 200:
        found.add("another host")
    request(link, f"{page}control", "POST", json.dumps({"time": 100}))
    _, stream, _ = request(link, f"{page}events/agent")
    assert '"decisions"' in stream
    if any(str(speed) in stream for speed in SPEEDS):
        found.add("speeds in the agent's stream")
    return found


@pytest.mark.parametrize("attack", BREAKAGES)
def test_each_breakage_is_noticed(attack: str, tmp_path: Path) -> None:
    world = make_world(horizon=300, disclosure="count", fog__ipt={"profile": SPEEDS})
    fogveil.run(world.scenario, "jsq", out=tmp_path / "run")
    with served(tmp_path / "run", BREAKAGES[attack]) as link:
        assert successful_attacks(link) == ({attack} if attack else set())
