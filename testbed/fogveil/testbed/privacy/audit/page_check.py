"""The page of a run: nobody but its opener gets anything, and the agent's half holds no secret.

The page is the experimenter's, so its private half shows the planted secrets: that they are found
there shows that the search works.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fogveil.core.errors import InfrastructureError
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.privacy.audit.canaries import planted_secrets, search
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.scenario.world import World

PROMISE = "page: it shows itself to its opener alone, and no secret on the agent's side"
SERVER = [sys.executable, "-m", "fogveil.testbed.dashboard.process"]
HORIZON = 2000.0
"""Of the run that is shown, at most."""
ANSWER_WITHIN = 60.0
GUESSES = (
    *("/", "/page.js", "/facts/agent", "/facts/private", "/events/private"),
    *("/page/", "/page/facts/private", "/open/", "/open/guess"),
)
"""What somebody may try who has found the port."""
LOOKS = (0.2, 0.6, 1.0)
"""When the agent's half is read, as shares of the horizon."""
REFUSED_USER = 54321
"""A user that stands for a participant's."""
FOREIGN = {
    "another host's name": {"Host": "evil.example"},
    "another page": {"Origin": "http://evil.example"},
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "another port of this machine": {"Sec-Fetch-Site": "same-site"},
}
"""Requests that know the secret address but do not come from the page, by who sends them."""


class Answer(NamedTuple):
    """What the page answered."""

    status: int
    body: bytes
    location: str


def check_page(world: World, policy: str, folder: Path) -> Finding:
    """Show a run of a world with planted secrets, and attack its page."""
    scenario = world.scenario.model_copy(
        update={"horizon": min(world.scenario.horizon, HORIZON), "events": []}
    )
    run_embedded(scenario, policy, folder)
    with _served(folder) as link:
        attack = _Attack(link)
        attack.without_secret()
        attack.with_secret()
        attack.read_agents_half(world, scenario.horizon)
    evidence = f"{attack.tried} requests, the agent's half at {len(LOOKS)} times"
    return judge(PROMISE, evidence, attack.faults, attack.tried if attack.searches else 0)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """Serve the page of a run in a process of its own; yield the link."""
    with subprocess.Popen(  # noqa: S603 (our own module)
        SERVER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        settings = {"folders": [str(folder.resolve())], "refused_users": [REFUSED_USER]}
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        try:
            answer = json.loads(process.stdout.readline() or "{}")
            if "link" not in answer:
                raise InfrastructureError(
                    f"the page of a run did not start: {answer.get('error', 'it said nothing')}"
                )
            yield answer["link"]
        finally:
            process.stdin.close()
            try:
                process.wait(ANSWER_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()


class _Attack:
    """Requests to one page, and what they should not have got."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self._host, self._link = parts.netloc, parts.path
        self._page = ""
        self.tried = 0
        self.faults: list[str] = []
        self.searches = False
        """Whether the search finds secrets where they are."""

    def without_secret(self) -> None:
        """Ask without the token, then open the link twice."""
        for path in GUESSES:
            self._expect_refusal(self._ask(path), f"{path} without the link")
        self._expect_refusal(self._ask("/control", "POST", "{}"), "/control without the link")
        opened = self._ask(self._link)
        self._page = opened.location or "/"
        self._expect_refusal(self._ask(self._link), "the link for the second time")

    def with_secret(self) -> None:
        """Ask for the private half as somebody who knows its address and is not the page."""
        private = f"{self._page}facts/private"
        for who, headers in FOREIGN.items():
            self._expect_refusal(self._ask(private, headers=headers), f"{private} as {who}")
        for path in ("../server.py", "uplot-LICENSE.txt"):
            self._expect_refusal(self._ask(self._page + path), path)
        if os.geteuid() == 0:
            self._expect_refusal(self._ask(private, user=REFUSED_USER), f"{private} as the agent")

    def read_agents_half(self, world: World, horizon: float) -> None:
        """Search what the agent's half shows for the planted secrets."""
        secrets = planted_secrets(world)
        shown = [("the public facts", self._ask(f"{self._page}facts/agent").body)]
        for share in LOOKS:
            self._ask(f"{self._page}control", "POST", json.dumps({"time": share * horizon}))
            shown.append((f"the agent's half at {share:.0%}", self._first_state("agent")))
        self.faults += search(secrets, shown)
        private = self._ask(f"{self._page}facts/private").body
        self.searches = any(search(secrets, [("the private half", private)]))

    def _first_state(self, half: str) -> bytes:
        connection = self._connection(None)
        with closing(connection):
            connection.request("GET", f"{self._page}events/{half}")
            self.tried += 1
            return connection.getresponse().readline()

    def _expect_refusal(self, answer: Answer, what: str) -> None:
        if answer.status < 400:  # noqa: PLR2004 (not an error)
            self.faults.append(f"{what}: answered with {answer.status}, {len(answer.body)} bytes")

    def _ask(
        self,
        path: str,
        method: str = "GET",
        body: str | None = None,
        headers: dict[str, str] | None = None,
        user: int | None = None,
    ) -> Answer:
        self.tried += 1
        connection = self._connection(user)
        with closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), answer.headers.get("location", ""))

    def _connection(self, user: int | None) -> http.client.HTTPConnection:
        """Connect; the kernel's tables name a socket's user by who has opened it."""
        connection = http.client.HTTPConnection(self._host, timeout=ANSWER_WITHIN)
        own = os.geteuid()
        if user is not None:
            os.seteuid(user)
        try:
            connection.connect()
        finally:
            os.seteuid(own)
        return connection
