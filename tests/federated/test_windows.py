"""The clock's core: what it grants to whom, and which messages it refuses."""

from __future__ import annotations

from collections import Counter
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import explore

from fogveil.clock.core import FLUSH_EVERY, ProtocolError, Windows
from fogveil.protocol.identity import AGENT
from fogveil.protocol.roster import Roster
from fogveil.v1.clock_pb2 import (
    LOOK_AFTER,
    LOOK_BEFORE,
    LOOK_NEVER,
    AgentDone,
    AgentReady,
    Hello,
    JoinRequest,
    Lost,
    ProviderDone,
    ProviderReady,
    SourcesDone,
)

ROSTER = Roster(("sources-1", "sources-2"), ("fog-1", "fog-2", "fog-3"), "cloud")


class Participants:
    """Participants that carry out each order at once, and record it."""

    def __init__(self, emitted, look, first=1, window=1, cloud=False, announces=300) -> None:
        self.emitted = {name: sorted(times) for name, times in emitted.items()}
        self.ready = AgentReady(look=look, cloud=cloud, first_window=first, window=window)
        self.announces = announces
        self.windows: list[list[float]] = []
        self.agent_grants: list = []
        self.granted: dict[str, list] = {name: [] for name in ROSTER.all}
        self.begun = Counter()

    def play(self, windows: Windows, order_of=lambda orders: orders) -> None:
        waiting = list(windows.begin())
        while waiting:
            waiting = order_of(waiting)
            name, order = waiting.pop(0)
            for sent in self._obey(name, order):
                waiting += windows.handle(name, sent)

    def _obey(self, name, order):
        if order.WhichOneof("kind") == "begin":
            self.begun[name] += 1
            self.left = {source: list(times) for source, times in self.emitted.items()}
            if name == AGENT:
                return [JoinRequest(agent_ready=self.ready)]
            if name in ROSTER.sources:
                return [self._announce(name)]
            return [JoinRequest(provider_ready=ProviderReady())]
        grant = order.grant
        self.granted[name].append(grant)
        if name in ROSTER.sources:
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


@settings(max_examples=60)
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
    windows = Windows(ROSTER, [0, 0])

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
    for name in ROSTER.fogs:
        observed = [time for grant in played.granted[name] for time in grant.observe_at]
        assert observed == ([] if look == LOOK_NEVER else instants * 2)
    watched = [time for grant in played.granted["cloud"] for time in grant.observe_at]
    assert watched == (instants * 2 if cloud and look != LOOK_NEVER else [])
    for name in ROSTER.all:
        lasts = [grant for grant in played.granted[name] if grant.last]
        assert [grant.until for grant in lasts] == [inf, inf]
        assert played.begun[name] == 2


def test_providers_have_earlier_placements_before_a_look_and_those_of_the_window_after_it():
    emitted = {"sources-1": [1.0, 2.0, 3.0], "sources-2": [2.0]}
    before = Participants(emitted, LOOK_BEFORE)
    before.play(Windows(ROSTER, [0]))
    assert [list(grant.expect) for grant in before.granted["fog-1"]] == [[0], [1], [2], [3], [4]]
    after = Participants(emitted, LOOK_AFTER, 2, 2)
    after.play(Windows(ROSTER, [0]))
    assert [list(grant.expect) for grant in after.granted["fog-1"]] == [[2], [4], [4]]
    assert [list(grant.expect) for grant in after.granted[AGENT]] == [[2, 1], [3, 1], []]


def test_aggregates_go_to_the_cloud_whenever_its_count_is_read_or_else_with_flushes():
    emitted = {"sources-1": [float(time) for time in range(2 * FLUSH_EVERY)], "sources-2": []}
    seldom = Participants(emitted, LOOK_BEFORE)
    seldom.play(Windows(ROSTER, [0]))
    assert sum(grant.forward for grant in seldom.granted["fog-2"]) == 3
    assert len(seldom.granted["cloud"]) == 3
    always = Participants(emitted, LOOK_BEFORE, cloud=True)
    always.play(Windows(ROSTER, [0]))
    assert all(grant.forward for grant in always.granted["fog-2"])
    assert len(always.granted["cloud"]) == 2 * FLUSH_EVERY + 1


def test_the_agent_waits_for_providers_that_lag_behind():
    class Slow(Participants):
        owed = 0

        def _obey(self, name, order):
            answers = super()._obey(name, order)
            if name == "fog-3" and order.grant.flush:
                self.owed += 1
                return []
            return answers

    emitted = {"sources-1": [float(time) for time in range(9 * FLUSH_EVERY)], "sources-2": []}
    slow = Slow(emitted, LOOK_NEVER, 64, 64)
    windows = Windows(ROSTER, [0])
    slow.play(windows)
    assert slow.owed == 3
    assert not windows.finished
    decided = windows.decisions
    for name, order in windows.handle("fog-3", JoinRequest(provider_done=ProviderDone())):
        assert name in (AGENT, *ROSTER.sources)
        assert order.grant.until > windows.time - 100
    assert windows.decisions == decided


def test_without_workloads_an_episode_ends_at_once():
    nothing = Participants({"sources-1": [], "sources-2": []}, LOOK_BEFORE)
    windows = Windows(ROSTER, [0])
    nothing.play(windows)
    assert windows.finished
    assert nothing.windows == []


@pytest.mark.parametrize(
    ("name", "message", "fault"),
    [
        ("fog-1", JoinRequest(provider_done=ProviderDone()), "provider_done out of turn"),
        ("fog-1", JoinRequest(agent_done=AgentDone()), "agent_done out of turn"),
        (AGENT, JoinRequest(agent_done=AgentDone()), "agent_done out of turn"),
        (AGENT, JoinRequest(agent_ready=AgentReady()), "does not declare when it looks"),
        (
            AGENT,
            JoinRequest(agent_ready=AgentReady(look=LOOK_BEFORE, first_window=1, window=2)),
            "windows other than 1 to 1",
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
def test_a_message_out_of_turn_or_invalid_is_refused(name, message, fault):
    windows = Windows(ROSTER, [0])
    windows.begin()
    with pytest.raises(ProtocolError, match=fault) as raised:
        windows.handle(name, message)
    assert raised.value.name == name


def test_an_agent_that_places_too_many_workloads_is_refused():
    played = Participants({"sources-1": [1.0], "sources-2": []}, LOOK_BEFORE)
    played._obey = lambda name, order: (  # type: ignore[method-assign]
        [JoinRequest(agent_done=AgentDone(placed=[1, 1, 0]))]
        if name == AGENT and order.grant.observe_at
        else Participants._obey(played, name, order)
    )
    with pytest.raises(ProtocolError, match="did not place as many"):
        played.play(Windows(ROSTER, [0]))


# --- a participant that does not keep to the protocol --------------------------------------------

instants = st.lists(st.integers(0, 2000).map(float), max_size=12)
DRAWN = {
    "agent_ready": st.builds(
        AgentReady,
        look=st.sampled_from([0, LOOK_NEVER, LOOK_BEFORE, LOOK_AFTER]),
        cloud=st.booleans(),
        first_window=st.integers(0, 300),
        window=st.integers(0, 300),
    ),
    "agent_done": st.builds(
        AgentDone,
        placed=st.one_of(
            st.lists(st.integers(0, 2), min_size=3, max_size=3),
            st.lists(st.integers(0, 2**32 - 1), max_size=4),
        ),
        enough=st.booleans(),
    ),
    "sources_done": st.builds(
        SourcesDone,
        next=st.one_of(
            instants.map(sorted), instants, st.just([5e3, 4e3]), st.just([nan]), st.just([inf])
        ),
        complete=st.sampled_from([True, True, False]),
    ),
    "provider_ready": st.just(ProviderReady()),
    "provider_done": st.just(ProviderDone()),
    "hello": st.just(Hello()),
    "lost": st.just(Lost(name="fog-1")),
}
"""What a participant may send, right or wrong."""
USUAL = {
    AGENT: ("agent_ready", "agent_done", "agent_done"),
    "sources-1": ("sources_done",) * 3,
    "fog-2": ("provider_ready", "provider_done"),
    "cloud": ("provider_ready", "provider_done"),
}
"""Who may send what: the first check, which most of what is drawn has to pass."""
faults = st.sampled_from(
    [(name, kind) for name, usual in USUAL.items() for kind in (*usual * 3, *DRAWN)]
).flatmap(
    lambda drawn: st.tuples(
        st.just(drawn[0]), DRAWN[drawn[1]].map(lambda sent: JoinRequest(**{drawn[1]: sent}))
    )
)


class Faulty(Participants):
    """Participants of whom one sends something else, once; nobody's time may run backwards."""

    def __init__(self, *arguments, culprit, at, sent, instead, **options) -> None:
        super().__init__(*arguments, **options)
        self._culprit, self._said, self._instead = culprit, sent, instead
        self._left_to_do = at
        """Orders that it obeys before."""
        self.has_failed = False

    def _obey(self, name, order):
        if order.WhichOneof("kind") == "grant":
            before = self.granted[name][-1].until if self.granted[name] else 0.0
            observed = list(order.grant.observe_at)
            assert [before, *observed, order.grant.until] == sorted(
                [before, *observed, order.grant.until]
            )
        answers = super()._obey(name, order)
        if name == self._culprit and not self.has_failed:
            self._left_to_do -= 1
            if self._left_to_do < 0:
                self.has_failed = True
                return [self._said, *([] if self._instead else answers)]
        return answers


def test_who_breaks_the_protocol_is_named_and_nobodys_time_runs_backwards():
    reached: Counter[str] = Counter()

    def check(numbers, look, window, cloud, fault, at, instead):
        culprit, sent = fault
        if look == LOOK_BEFORE:
            window = 1
        emitted = {
            name: [3.0 * time for time in range(number)]
            for name, number in zip(ROSTER.sources, numbers, strict=True)
        }
        played = Faulty(
            *(emitted, look, window, window, cloud),
            culprit=culprit,
            at=at,
            sent=sent,
            instead=instead,
        )
        windows = Windows(ROSTER, [0])
        refusal = None
        try:
            played.play(windows)
        except ProtocolError as error:
            refusal = error
        if refusal is None:
            assert windows.finished
            reached["right by chance"] += played.has_failed
            return
        assert refusal.name == culprit
        reached[f"refused: {str(refusal).removeprefix(culprit)}"] += 1
        reached["refused after decisions"] += windows.decisions > 0

    def sentences() -> set[str]:
        return {case for case in reached if case.startswith("refused: ")}

    def all_reached() -> bool:
        both = reached["right by chance"] and reached["refused after decisions"]
        return bool(both) and len(sentences()) >= 12

    explore(
        check,
        all_reached,
        examples=450,
        numbers=st.tuples(st.integers(0, 700), st.integers(0, 700)),
        look=st.sampled_from([LOOK_NEVER, LOOK_BEFORE, LOOK_AFTER]),
        window=st.integers(1, 70),
        cloud=st.booleans(),
        fault=faults,
        at=st.integers(0, 8),
        instead=st.booleans(),
    )
    assert reached["right by chance"]
    assert reached["refused after decisions"]
    assert len(sentences()) >= 12, sentences()
