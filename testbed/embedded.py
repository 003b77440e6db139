"""The embedded engine: all cores in one process, on a SimPy calendar."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappush
from math import inf
from typing import Any

import simpy

from agent.choosing import choose, learn
from agent.policy import Load, Observation, Policy
from agent.record import UNSEEN
from fogveil.disclosure import Level
from fogveil.errors import InputError
from provider_node.node import Served
from provider_node.provider import Provider
from testbed.joining import Joiner, Sink
from testbed.sources import Emission, streams
from testbed.world import World

SWEEP = 256
"""Decisions between two sweeps over the nodes where nobody looks at their counts."""
PROGRESS_EVERY = 512
"""Decisions between two reports of progress."""
NODES_FIRST = 0
"""At one instant nodes move before workloads are emitted; those follow in order of job id."""


Progress = Callable[[float, int], None]
"""Takes the simulated time and the number of decisions."""


class Calendar(simpy.Environment):
    """SimPy's calendar with absolute times: now + (time - now) is not `time` in floating point."""

    def at(self, time: float, priority: int, event: simpy.Event) -> None:
        """Put an event into the calendar."""
        heappush(self._queue, (time, priority, next(self._eid), event))  # type: ignore[misc]


class Alarm(simpy.Event):
    """An event that goes off again and again, sparing an allocation each time."""

    def __init__(self, calendar: Calendar, action: Callable[[Any], None]) -> None:
        super().__init__(calendar)
        self._ok, self._value = True, None
        self._actions = [action]
        self._calendar = calendar

    def set(self, time: float, priority: int) -> None:
        """Let it go off at the given time."""
        self.callbacks = self._actions
        self._calendar.at(time, priority, self)


class Embedded:
    """One run: ask for the next decision, place it, until none is left.

    Nodes move on by themselves in the calendar only where the policy sees counts; otherwise they
    are swept now and then, which gives the same run for fewer events.
    """

    def __init__(
        self,
        world: World,
        needs: Level,
        *,
        watches_cloud: bool = False,
        sinks: Iterable[Sink] = (),
    ) -> None:
        if needs > world.agent.disclosed:
            raise InputError(
                f"level {needs.word!r} was asked for, but the providers disclose "
                f"{world.agent.disclosed.word!r}"
            )
        self._up = world.network.up
        demands = world.demands or ()
        self._fogs = [Provider(config, demands) for config in world.fogs]
        self._cloud = Provider(world.cloud_provider, demands)
        self._joiner = Joiner(world.network.down, world.network.cloud_to_cluster, sinks)
        self._calendar = Calendar()
        self.pending: Emission | None = None
        """The workload that waits for its decision."""
        self._needs = needs
        self._watches_cloud = needs is Level.TOTAL or watches_cloud
        self._counts = [0] * len(self._fogs)
        self._alarms: list[_NodeAlarm] = []
        if self._needs >= Level.TOTAL:
            self._alarms = [
                _NodeAlarm(self._calendar, provider, self._fog_moves(number))
                for number, provider in enumerate(self._fogs)
            ]
            self._cloud_alarm = _NodeAlarm(self._calendar, self._cloud, self._move_cloud)
        self._static_load = (
            tuple(config.ipt for config in world.fogs),
            tuple(config.ram for config in world.fogs),
            tuple(zip(*(fog.expected for fog in self._fogs), strict=True)),
        )
        self.decisions = 0
        for stream in streams(world.sources):
            _SourceAlarm(self._calendar, stream, self)

    @property
    def now(self) -> float:
        """The simulated time."""
        return self._calendar.now

    def next_decision(self) -> Observation | None:
        """Go on to the next workload and return what the policy may see; None after the last."""
        step = self._calendar.step
        try:
            while self.pending is None:
                step()
        except simpy.core.EmptySchedule:
            return None
        time, job, cluster, category = self.pending
        if self._needs is Level.NONE:
            return Observation(time, job, cluster, category)
        counts = tuple(self._counts)
        cloud = self._cloud.count if self._watches_cloud else None
        if self._needs is Level.TOTAL:
            assert cloud is not None
            total = sum(counts) + cloud
            self._joiner.observed((total,))
            return Observation(time, job, cluster, category, total=total)
        self._joiner.observed(counts)
        self._joiner.observed((UNSEEN if cloud is None else cloud,))
        load = self._load(time, job, category) if self._needs is Level.FULL else None
        return Observation(time, job, cluster, category, counts, cloud, None, load)

    def place(self, node: int) -> None:
        """Send the workload of the last decision to a node."""
        assert self.pending is not None
        time, job, cluster, category = self.pending
        self.pending = None
        arrival = time + self._up[cluster][category][node]
        self._fogs[node].accept(job, category, arrival)
        self._joiner.decided(job, cluster, category, node, time, arrival)
        self.decisions += 1
        if self._alarms:
            self._alarms[node].expect(arrival)
        elif self.decisions % SWEEP == 0:
            self._sweep(time)

    def finish(self) -> str:
        """Serve what is left after the last emission and return the run hash."""
        self._sweep(inf)
        return self._joiner.close()

    def _load(self, time: float, job: int, category: int) -> Load:
        return Load(
            *self._static_load,
            tuple(fog.node.backlog(time) for fog in self._fogs),
            tuple(fog.service_time(job, category) for fog in self._fogs),
        )

    def _sweep(self, until: float) -> None:
        for fog in self._fogs:
            self._pass_on(fog, fog.advance(until))
        self._move_cloud(until)

    def _fog_moves(self, number: int) -> Callable[[float], None]:
        fog, counts = self._fogs[number], self._counts

        def move(until: float) -> None:
            served = fog.advance(until)
            counts[number] = fog.count
            if served:
                self._pass_on(fog, served)

        return move

    def _pass_on(self, fog: Provider, served: list[Served]) -> None:
        for job, category, arrival in fog.aggregates(served):
            self._cloud.accept(job, category, arrival)
            self._joiner.forwarded(job)
            if self._alarms:
                self._cloud_alarm.expect(arrival)
        self._joiner.served(served)

    def _move_cloud(self, until: float) -> None:
        served = self._cloud.advance(until)
        self._joiner.cloud_served([(job, self._cloud.is_fed_back(job[0])) for job in served])


class _SourceAlarm(Alarm):
    """Goes off when a source emits."""

    def __init__(self, calendar: Calendar, stream: Iterable[Emission], engine: Embedded) -> None:
        super().__init__(calendar, self._emit)
        self._next = iter(stream).__next__
        self._engine = engine
        self._advance()

    def _advance(self) -> None:
        try:
            self._emission = self._next()
        except StopIteration:
            return
        self.set(self._emission[0], NODES_FIRST + 1 + self._emission[1])

    def _emit(self, _event: simpy.Event) -> None:
        self._engine.pending = self._emission
        self._advance()


class _NodeAlarm:
    """Moves a node at the times at which it changes."""

    def __init__(
        self, calendar: Calendar, provider: Provider, move: Callable[[float], None]
    ) -> None:
        self._calendar, self._node, self._move = calendar, provider.node, move
        self._due = inf
        self._spare: list[Alarm] = []

    def expect(self, time: float) -> None:
        """See to it that the node moves at this time at the latest."""
        if time < self._due:
            self._due = time
            alarm = self._spare.pop() if self._spare else Alarm(self._calendar, self._ring)
            alarm.set(time, NODES_FIRST)

    def _ring(self, alarm: Alarm) -> None:
        self._spare.append(alarm)
        now = self._calendar.now
        if now >= self._due:  # else the node has moved since, and an earlier alarm is set
            self._move(now)
            self._due = inf
            self.expect(self._node.next_event)


def simulate(
    world: World,
    policy: Policy,
    sinks: Iterable[Sink] = (),
    progress: Progress | None = None,
) -> str:
    """Run a whole scenario under a policy and return the run hash."""
    kind = type(policy)  # what an instance says of itself may have changed since it was checked
    engine = Embedded(world, kind.needs, watches_cloud=kind.watches_cloud, sinks=sinks)
    nodes, ahead = len(world.nodes), kind.decides_ahead
    while (seen := engine.next_decision()) is not None:
        node = choose(policy, seen.blind() if ahead else seen, nodes)
        if ahead:
            learn(policy, seen, node)
        engine.place(node)
        if progress and engine.decisions % PROGRESS_EVERY == 0:
            progress(seen.time, engine.decisions)
    return engine.finish()
