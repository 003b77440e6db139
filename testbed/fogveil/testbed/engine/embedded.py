"""The embedded engine: all cores in one process, on a SimPy calendar."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf

import simpy

from fogveil.agent.decision_record import UNSEEN, observed_counts
from fogveil.agent.policy import LatencyChange, Load, Observation, PerNode, Policy
from fogveil.agent.policy_call import call_learn, call_place, call_update, watching
from fogveil.agent.visibility import Visibility
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.core.membership import Membership
from fogveil.sources.core import Emission, streams
from fogveil.testbed.engine.calendar import Calendar, RecurringEvent
from fogveil.testbed.engine.providers import (
    PROVIDERS_FIRST,
    Batched,
    EventDriven,
    Progression,
    Providers,
)
from fogveil.testbed.engine.retries import Retries
from fogveil.testbed.records.join import Joiner, Sink
from fogveil.testbed.scenario.world import World

PROGRESS_PERIOD = 512
"""Decisions between two reports of progress."""

Progress = Callable[[float, int], None]
"""Receives the simulated time and the number of decisions."""


class Embedded:
    """One run: take the next decision, place its workload, until none is left; then finish."""

    def __init__(
        self,
        world: World,
        level: Level,
        *,
        watches_cloud: bool = False,
        sinks: Iterable[Sink] = (),
        stepwise: bool = False,
    ) -> None:
        """Begin a run whose observations hold what `level` permits, with the Cloud's count or not.

        The joined records of the run go to the sinks. `stepwise`: the providers are current at
        every decision, also where no count is observed.
        """
        if level > world.agent.disclosed:
            raise InputError(
                f"level {level.word!r} was asked for, but the providers disclose "
                f"{world.agent.disclosed.word!r}"
            )
        self.level = level
        self.nodes = len(world.nodes)
        self._visibility = Visibility(level, watches_cloud=watches_cloud)
        self._up = world.paths.up
        self._members = Membership(self.nodes, world.members)
        self._latency_changes = deque(world.latency_changes)
        self._changes_at = self._next_change
        """When members or latencies change next."""
        self.new_latencies: LatencyChange | None = None
        """The latencies that hold since the decision at hand, until the policy is told."""
        self._joiner = Joiner(world.paths_over_time, sinks, retries=world.loses_jobs)
        self.providers = providers = Providers(world, self._joiner)
        calendar = Calendar()
        self._step = calendar.step
        self._retries: Retries | None = None
        if world.loses_jobs:
            self._retries = Retries(calendar, self._emit, PROVIDERS_FIRST + 1)
            providers.on_loss = self._retries.lost
        batched = level is Level.NONE and not stepwise and not world.loses_jobs
        progression: Progression = (
            Batched(providers) if batched else EventDriven(calendar, providers)
        )
        self._placed = progression.placed
        self._ram = tuple(config.ram for config in world.fogs)
        self._resources = None if any(fog.changes for fog in world.fogs) else self._current(0.0)
        """Where nothing changes, what level `full` tells of the nodes."""
        self._emitted: deque[Emission] = deque()
        """The workload that waits for its placement; empty until the calendar reaches the next."""
        for stream in streams(world.sources):
            _SourceEvent(calendar, stream, self._emit if self._retries else self._emitted.append)
        self.decisions = 0

    def _emit(self, emission: Emission) -> None:
        assert self._retries is not None
        self._retries.emitted(emission)
        self._emitted.append(emission)

    def next_decision(self) -> Observation | None:
        """Advance to the next workload and return what is observed there; None after the last."""
        emitted, step = self._emitted, self._step
        try:
            while not emitted:
                step()
        except simpy.core.EmptySchedule:
            return None
        emission = emitted[0]
        visibility, providers, members = self._visibility, self.providers, self._members
        if emission[0] >= self._changes_at:
            self._change(emission[0])
        attempt = self._retries.attempt(emission[1]) if self._retries else 1
        if self.level is Level.NONE:
            return visibility.observation(
                emission, (), None, None, None, members.available, attempt
            )
        counts = tuple(providers.counts)
        if members.silent:
            counts = members.hide(counts, UNSEEN)
        observation = visibility.observation(
            emission,
            counts,
            providers.cloud.count if visibility.needs_cloud else None,
            None,
            self._load(emission) if self.level is Level.FULL else None,
            members.available,
            attempt,
        )
        self._joiner.observed(observed_counts(observation))
        return observation

    @property
    def _next_change(self) -> float:
        latencies = self._latency_changes
        return min(self._members.next_change, latencies[0].at if latencies else inf)

    def _change(self, now: float) -> None:
        """Make the changes of members and latencies up to and including an instant."""
        self._members.advance(now)
        while self._latency_changes and self._latency_changes[0].at <= now:
            self.new_latencies = self._latency_changes.popleft()
            self._up = self.new_latencies.up
        self._changes_at = self._next_change

    def _load(self, emission: Emission) -> Load:
        time, job, _, category = emission
        fogs = self.providers.fogs
        load = Load(
            *(self._resources or self._current(time)),
            tuple(fog.node.backlog(time) for fog in fogs),
            tuple(
                fog.service_time(job, category)
                if self._resources
                else fog.timed_service(job, category, time, time)
                for fog in fogs
            ),
        )
        return load.hiding(self._members.silent) if self._members.silent else load

    def _current(self, now: float) -> tuple[PerNode, PerNode, tuple[PerNode, ...]]:
        """Return speeds, memory, and the mean service times by category."""
        fogs = self.providers.fogs
        return (
            tuple(fog.timetable.ipt.at(now) for fog in fogs),
            self._ram,
            tuple(zip(*(fog.expected_at(now) for fog in fogs), strict=True)),
        )

    def place(self, node: int) -> None:
        """Send the workload of the last decision to a node."""
        time, job, cluster, category = self._emitted.popleft()
        arrival = time + self._up[cluster][category][node]
        self.providers.fogs[node].accept(job, category, arrival)
        self._joiner.decided(job, cluster, category, node, time, arrival)
        self.decisions += 1
        self._placed(node, time)

    def finish(self) -> str:
        """Serve what is left after the last emission and return the run hash."""
        self.providers.advance_all(inf)
        return self._joiner.close()


class _SourceEvent(RecurringEvent):
    """Occurs whenever a source emits a workload; those of one instant in order of job id."""

    def __init__(
        self, calendar: Calendar, stream: Iterator[Emission], emit: Callable[[Emission], None]
    ) -> None:
        super().__init__(calendar, self._occur)
        self._stream, self._emit = stream, emit
        self._schedule_next()

    def _schedule_next(self) -> None:
        try:
            self._emission = time, job, _, _ = next(self._stream)
        except StopIteration:
            return
        self.schedule(time, PROVIDERS_FIRST + 1 + job)

    def _occur(self, _event: simpy.Event) -> None:
        self._emit(self._emission)
        self._schedule_next()


def take_decisions(engine: Embedded, policy: Policy) -> Iterator[tuple[Observation, int]]:
    """Let a policy take the engine's decisions; yield each observation with the chosen node.

    An engine whose level is above that of a policy without disclosure shows its observations to
    the caller alone.
    """
    kind = type(policy)  # an instance may have changed what it declares since it was checked
    assert kind.needs in (Level.NONE, engine.level)
    ahead, hidden = kind.decides_ahead, kind.needs is not engine.level
    nodes, next_decision, place = engine.nodes, engine.next_decision, engine.place
    while (observation := next_decision()) is not None:
        if engine.new_latencies:
            call_update(policy, engine.new_latencies, observation)
            engine.new_latencies = None
        shown = observation.without_disclosure() if ahead or hidden else observation
        node = call_place(policy, shown, nodes)
        if ahead:
            call_learn(policy, shown if hidden else observation, node)
        place(node)
        yield observation, node


def simulate(
    world: World,
    policy: Policy,
    sinks: Iterable[Sink] = (),
    progress: Progress | None = None,
) -> str:
    """Run a whole scenario under a policy and return the run hash."""
    kind = type(policy)
    engine = Embedded(world, kind.needs, watches_cloud=kind.watches_cloud, sinks=sinks)
    with watching(policy):
        for observation, _ in take_decisions(engine, policy):
            if progress and engine.decisions % PROGRESS_PERIOD == 0:
                progress(observation.time, engine.decisions)
    return engine.finish()
