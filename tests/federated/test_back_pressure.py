"""Who is slow holds the others up, and nobody keeps more and more for it."""

from __future__ import annotations

import asyncio
import time

import pytest
from federated_support import Parts
from grpc import aio
from test_windows import ROSTER, Participants

from fogveil.agent.boundary_client import MOST_AHEAD, BoundaryClient
from fogveil.agent.marks import Marks, marks_by, read_marks
from fogveil.agent.settings import AgentSettings
from fogveil.clock.core import FLUSH_EVERY, MOST_OPEN_FLUSHES, Windows
from fogveil.core.errors import MisbehaviourError
from fogveil.protocol.identity import AGENT
from fogveil.protocol.limits import LARGEST_WINDOW
from fogveil.protocol.settings import read_settings
from fogveil.v1.boundary_pb2 import WatchResponse
from fogveil.v1.boundary_pb2_grpc import QueueServiceServicer, add_QueueServiceServicer_to_server
from fogveil.v1.clock_pb2 import LOOK_AFTER, LOOK_BEFORE, LOOK_NEVER

JOBS = 20 * LARGEST_WINDOW


class OneHangs(Participants):
    """Participants of whom one answers nothing from some order on."""

    def __init__(self, hangs, look, after=3):
        emitted = {"sources-1": [float(time) for time in range(JOBS)], "sources-2": []}
        super().__init__(emitted, look, 1 if look == LOOK_BEFORE else 64, 64)
        if look == LOOK_BEFORE:
            self.ready.window = 1
        self._hangs, self._after = hangs, after
        self.orders = 0
        """That wait for the one that hangs."""

    def _obey(self, name, order):
        if name == self._hangs:
            self._after -= 1
            if self._after < 0:
                self.orders += 1
                return []
        return super()._obey(name, order)


@pytest.mark.parametrize("look", [LOOK_BEFORE, LOOK_AFTER, LOOK_NEVER])
@pytest.mark.parametrize("hangs", [AGENT, "fog-2", "cloud", "sources-1"])
def test_the_clock_gives_few_orders_to_one_that_does_not_answer(hangs, look):
    """So few orders, workloads, placements and results wait for it, wherever they wait."""
    windows, others = Windows(ROSTER, [0]), OneHangs(hangs, look)
    others.play(windows)
    assert not windows.finished
    most = (MOST_OPEN_FLUSHES + 1) * FLUSH_EVERY + LARGEST_WINDOW
    assert others.orders <= most
    if hangs != "sources-1":  # it publishes nothing that it was not granted
        published = JOBS - len(others.left["sources-1"])
        assert published <= windows.decisions + 3 * LARGEST_WINDOW
    assert windows.decisions <= most + 3 * LARGEST_WINDOW


def agent_settings(folder, *, recovers=True, **changes):
    """Return the settings of an agent in a run that recovers."""
    parts = Parts(folder, disclosure="count")
    addresses = dict.fromkeys((*ROSTER.fogs, "cloud"), "127.0.0.1:1")
    config = parts.split.agent("127.0.0.1:1", {**addresses, **changes.pop("providers", {})})
    return read_settings(parts.change(config, recovers=recovers, **changes), AgentSettings)


FLOOD = 100_000


class Flooding(QueueServiceServicer):
    """A provider that sends windows which nobody was granted."""

    def __init__(self):
        self.sent = 0

    async def Watch(self, _request, context):  # noqa: N802 (the protocol's name)
        while self.sent < FLOOD:
            await context.write(WatchResponse(counts=[0] * LARGEST_WINDOW))
            self.sent += 1
        await asyncio.Event().wait()


def test_the_counts_of_a_provider_that_floods_stay_with_it(tmp_path):
    async def watch():
        provider, server = Flooding(), aio.server()
        add_QueueServiceServicer_to_server(provider, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        settings = agent_settings(tmp_path, providers={"fog-1": f"127.0.0.1:{port}"})
        marks = Marks(settings)
        client = BoundaryClient(settings, marks, None)
        try:
            await client.watch(["fog-1"])
            before, deadline = -1, time.monotonic() + 60
            while provider.sent > before and time.monotonic() < deadline:
                before = provider.sent
                await asyncio.sleep(2)
            assert MOST_AHEAD <= provider.sent < FLOOD / 2
            await client.window(("fog-1",), LARGEST_WINDOW)
        finally:
            await client.unwatch(["fog-1"])
            await server.stop(None)
        return marks

    marks = asyncio.run(watch())
    assert marks.names == {"fog-1"}
    (mark,) = read_marks(tmp_path / AGENT)
    assert mark.why == "fog-1 disclosed the counts of windows that nobody was granted"


# --- marks ----------------------------------------------------------------------------------------


def test_an_agent_that_is_back_marks_when_it_did_before(tmp_path):
    settings = agent_settings(tmp_path)
    marks = Marks(settings)
    for count in range(3):
        marks.hear("fog-2", [count])
    marks.now = 7.5
    marks.add("fog-2", "it lies")
    assert marks.take_unsaid() == [1]
    assert marks.take_unsaid() == []

    again = Marks(settings)
    assert again.names == set()
    for count in range(3):
        assert again.is_known("fog-2")
        assert list(again.repeat("fog-2", 1)) == [count]
        again.hear("fog-2", [count])
    assert again.names == set()
    assert again.repeat("fog-2", 1) is None
    assert again.names == {"fog-2"}
    again.begin(1)
    assert again.names == {"fog-2"}
    assert not again.is_known("fog-2")
    (mark,) = marks_by(read_marks(settings.folder), 1, ROSTER.fogs).values()
    assert (mark.who, mark.episode, mark.time, mark.why) == ("fog-2", 0, 7.5, "it lies")
    assert not marks_by(read_marks(settings.folder), -1, ROSTER.fogs)


def test_the_cloud_and_the_last_provider_end_the_run(tmp_path):
    marks = Marks(agent_settings(tmp_path))
    with pytest.raises(MisbehaviourError, match="it lies"):
        marks.add("cloud", "it lies")
    marks.add("fog-1", "it lies")
    marks.add("fog-2", "it lies")
    with pytest.raises(MisbehaviourError, match="so does this one"):
        marks.add("fog-3", "so does this one")
    off = Marks(agent_settings(tmp_path / "end", recovers=False))
    with pytest.raises(MisbehaviourError, match="it lies"):
        off.add("fog-1", "it lies")


@pytest.mark.parametrize(
    "content", ["[1]\n", "{}\n", '{"who": 1}\n', "[" * 10**5 + "\n", "x\n", "\xff\xfe\n"]
)
def test_what_is_no_mark_is_refused(tmp_path, content):
    (tmp_path / "marked.jsonl").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match="marked.jsonl holds something else than marks"):
        list(read_marks(tmp_path))


def test_a_mark_that_is_cut_off_is_none(tmp_path):
    (tmp_path / "marked.jsonl").write_text('{"who": "fog-1", "epi')
    assert list(read_marks(tmp_path)) == []
