"""The clock's windows: what is granted to whom, and what a participant may not say."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fogveil.identity import AGENT
from fogveil.v1.clock_pb2 import (
    LOOK_AFTER,
    LOOK_BEFORE,
    LOOK_NEVER,
    AgentDone,
    AgentReady,
    JoinRequest,
    ProviderDone,
    ProviderReady,
    SourcesDone,
)
from testbed.federated.windows import FLUSH_EVERY, ProtocolError, Seats, Windows

SEATS = Seats(("sources-1", "sources-2"), ("fog-1", "fog-2", "fog-3"), "cloud")


class Participants:
    """Obedient participants: they do at once what they are told, and note it."""

    def __init__(self, emitted, look, first=1, window=1, cloud=False, announces=300) -> None:
        self.emitted = {name: sorted(times) for name, times in emitted.items()}
        self.ready = AgentReady(look=look, cloud=cloud, first_window=first, window=window)
        self.announces = announces
        self.windows: list[list[float]] = []
        self.agent_grants: list = []
        self.granted: dict[str, list] = {name: [] for name in SEATS.all}
        self.begun = Counter()

    def play(self, windows: Windows, order_of=lambda orders: orders) -> None:
        waiting = list(windows.begin())
        while waiting:
            waiting = order_of(waiting)
            name, order = waiting.pop(0)
            for said in self._obey(name, order):
                waiting += windows.take(name, said)

    def _obey(self, name, order):
        if order.WhichOneof("kind") == "begin":
            self.begun[name] += 1
            self.left = {source: list(times) for source, times in self.emitted.items()}
            if name == AGENT:
                return [JoinRequest(agent_ready=self.ready)]
            if name in SEATS.sources:
                return [self._announce(name)]
            return [JoinRequest(provider_ready=ProviderReady())]
        grant = order.grant
        self.granted[name].append(grant)
        if name in SEATS.sources:
            if not grant.last:
                self.left[name] = [time for time in self.left[name] if time > grant.until]
            return [self._announce(name)]
        if name == AGENT:
            if grant.last:
                return [JoinRequest(agent_done=AgentDone())]
            self.windows.append(list(grant.observe_at))
            placed = [len(grant.observe_at), 0, 0]
            return [JoinRequest(agent_done=AgentDone(placed=placed))]
        return [JoinRequest(provider_done=ProviderDone())] if grant.flush else []

    def _announce(self, name):
        left = self.left[name]
        number = self.announces
        while number < len(left) and left[number] == left[number - 1]:
            number += 1
        done = SourcesDone(next=left[:number], complete=number >= len(left))
        return JoinRequest(sources_done=done)


times = st.lists(st.integers(0, 2000).map(float), max_size=900)


@settings(max_examples=60, deadline=None)
@given(
    one=times,
    two=times,
    look=st.sampled_from([LOOK_NEVER, LOOK_BEFORE, LOOK_AFTER]),
    first=st.integers(1, 70),
    window=st.integers(1, 256),
    cloud=st.booleans(),
    shuffle=st.randoms(use_true_random=False),
)
def test_every_instant_is_decided_once_and_in_order(
    one, two, look, first, window, cloud, shuffle
) -> None:
    if look == LOOK_BEFORE:
        first = window = 1
    played = Participants({"sources-1": one, "sources-2": two}, look, first, window, cloud)
    windows = Windows(SEATS, [0, 0])

    def any_order(waiting):
        # Messages of one participant stay in order; those of different ones overtake each other.
        names = list(dict.fromkeys(name for name, _ in waiting))
        chosen = shuffle.choice(names)
        at = next(place for place, (name, _) in enumerate(waiting) if name == chosen)
        return [waiting[at], *waiting[:at], *waiting[at + 1 :]]

    played.play(windows, any_order)
    instants = sorted([*one, *two])
    assert windows.finished
    assert [time for taken in played.windows for time in taken] == instants * 2
    sizes = [len(taken) for taken in played.windows[: len(played.windows) // 2]]
    if len(instants) > first:
        assert sizes[0] == first
        assert all(size == window for size in sizes[1:-1])
    for name in SEATS.fogs:
        observed = [time for grant in played.granted[name] for time in grant.observe_at]
        assert observed == ([] if look == LOOK_NEVER else instants * 2)
    watched = [time for grant in played.granted["cloud"] for time in grant.observe_at]
    assert watched == (instants * 2 if cloud and look != LOOK_NEVER else [])
    for name in SEATS.all:
        lasts = [grant for grant in played.granted[name] if grant.last]
        assert [grant.until for grant in lasts] == [inf, inf]
        assert played.begun[name] == 2


def test_before_a_look_providers_have_all_earlier_placements_and_after_it_those_of_the_window():
    emitted = {"sources-1": [1.0, 2.0, 3.0], "sources-2": [2.0]}
    before = Participants(emitted, LOOK_BEFORE)
    before.play(Windows(SEATS, [0]))
    assert [list(grant.expect) for grant in before.granted["fog-1"]] == [[0], [1], [2], [3], [4]]
    after = Participants(emitted, LOOK_AFTER, 2, 2)
    after.play(Windows(SEATS, [0]))
    assert [list(grant.expect) for grant in after.granted["fog-1"]] == [[2], [4], [4]]
    assert [list(grant.expect) for grant in after.granted[AGENT]] == [[2, 1], [3, 1], []]


def test_aggregates_go_to_the_cloud_with_every_look_at_it_or_now_and_then():
    emitted = {"sources-1": [float(time) for time in range(2 * FLUSH_EVERY)], "sources-2": []}
    seldom = Participants(emitted, LOOK_BEFORE)
    seldom.play(Windows(SEATS, [0]))
    assert sum(grant.forward for grant in seldom.granted["fog-2"]) == 3
    assert len(seldom.granted["cloud"]) == 3
    always = Participants(emitted, LOOK_BEFORE, cloud=True)
    always.play(Windows(SEATS, [0]))
    assert all(grant.forward for grant in always.granted["fog-2"])
    assert len(always.granted["cloud"]) == 2 * FLUSH_EVERY + 1


def test_the_agent_waits_for_providers_that_lag_behind():
    class Slow(Participants):
        owed = 0

        def _obey(self, name, order):
            said = super()._obey(name, order)
            if name == "fog-3" and order.grant.flush:
                self.owed += 1
                return []
            return said

    emitted = {"sources-1": [float(time) for time in range(9 * FLUSH_EVERY)], "sources-2": []}
    slow = Slow(emitted, LOOK_NEVER, 64, 64)
    windows = Windows(SEATS, [0])
    slow.play(windows)
    assert slow.owed == 3
    assert not windows.finished
    decided = windows.decisions
    for name, order in windows.take("fog-3", JoinRequest(provider_done=ProviderDone())):
        assert name in (AGENT, *SEATS.sources)
        assert order.grant.until > windows.time - 100
    assert windows.decisions == decided


def test_without_workloads_an_episode_ends_at_once():
    nothing = Participants({"sources-1": [], "sources-2": []}, LOOK_BEFORE)
    windows = Windows(SEATS, [0])
    nothing.play(windows)
    assert windows.finished
    assert nothing.windows == []


@pytest.mark.parametrize(
    ("name", "message", "what"),
    [
        ("fog-1", JoinRequest(provider_done=ProviderDone()), "provider_done out of turn"),
        ("fog-1", JoinRequest(agent_done=AgentDone()), "agent_done out of turn"),
        (AGENT, JoinRequest(agent_done=AgentDone()), "agent_done out of turn"),
        (AGENT, JoinRequest(agent_ready=AgentReady()), "does not say when it looks"),
        (
            AGENT,
            JoinRequest(agent_ready=AgentReady(look=LOOK_BEFORE, first_window=1, window=2)),
            "windows that are not of 1 to 1",
        ),
        (
            "sources-1",
            JoinRequest(sources_done=SourcesDone(next=[2.0, 1.0], complete=True)),
            "out of order",
        ),
        ("sources-1", JoinRequest(sources_done=SourcesDone(next=[2.0])), "too few"),
        ("sources-1", JoinRequest(), "out of turn"),
    ],
)
def test_what_may_not_be_said_is_named(name, message, what):
    windows = Windows(SEATS, [0])
    windows.begin()
    with pytest.raises(ProtocolError, match=what) as raised:
        windows.take(name, message)
    assert raised.value.name == name


def test_an_agent_that_places_too_much_is_named():
    played = Participants({"sources-1": [1.0], "sources-2": []}, LOOK_BEFORE)
    played._obey = lambda name, order: (  # type: ignore[method-assign]
        [JoinRequest(agent_done=AgentDone(placed=[1, 1, 0]))]
        if name == AGENT and order.grant.observe_at
        else Participants._obey(played, name, order)
    )
    with pytest.raises(ProtocolError, match="another number"):
        played.play(Windows(SEATS, [0]))
