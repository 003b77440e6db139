"""The providers of an embedded run, and the two ways in which time moves them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Protocol

from fogveil.provider_node.node import Lost
from fogveil.provider_node.provider import Provider
from fogveil.testbed.engine.calendar import Calendar, RecurringEvent
from fogveil.testbed.records.join import Joiner
from fogveil.testbed.scenario.world import World

PROVIDERS_FIRST = 0
"""Priority of providers' events: at one instant they precede the emissions of workloads."""
BATCH = 256
"""Decisions between two advances of all providers where nobody observes their counts."""


class Providers:
    """All providers of a run: jobs that a Fog node has served are recorded, some are forwarded."""

    def __init__(self, world: World, joiner: Joiner) -> None:
        demands = world.demands or ()
        self.fogs = [Provider(config, demands) for config in world.fogs]
        self.cloud = Provider(world.cloud_provider, demands)
        self.counts = [0] * len(self.fogs)
        """The Fog nodes' counts, each as of its last advance."""
        self.on_forward: Callable[[], None] = _ignore
        """Called when a job is forwarded to the Cloud."""
        self.on_loss: Callable[[list[Lost]], None] | None = None
        """Called with jobs that a crash has lost."""
        self._joiner = joiner

    def advance_fog(self, number: int, until: float) -> None:
        """Move a Fog node through time; pass on what it has served."""
        fog = self.fogs[number]
        served = fog.advance(until)
        self.counts[number] = fog.count
        if self.on_loss and fog.node.lost:
            self.on_loss(fog.node.take_lost())
        if served:
            for job, category, arrival in fog.aggregates(served):
                self.cloud.accept(job, category, arrival)
                self._joiner.forwarded(job)
                self.on_forward()
            self._joiner.served(served)

    def advance_cloud(self, until: float) -> None:
        """Move the Cloud through time."""
        served = self.cloud.advance(until)
        self._joiner.cloud_served([(job, self.cloud.is_fed_back(job[0])) for job in served])

    def advance_all(self, until: float) -> None:
        """Move all providers through time, the Cloud after those that forward to it."""
        for number in range(len(self.fogs)):
            self.advance_fog(number, until)
        self.advance_cloud(until)


def _ignore() -> None:
    pass


class Progression(Protocol):
    """Moves the providers as the run proceeds."""

    def placed(self, node: int, now: float) -> None:
        """Account for a job that a Fog node has accepted."""


class EventDriven:
    """Moves each provider at its own events, so that all counts are current at every decision."""

    def __init__(self, calendar: Calendar, providers: Providers) -> None:
        self._fogs = [
            _ProviderEvents(calendar, fog, partial(providers.advance_fog, number))
            for number, fog in enumerate(providers.fogs)
        ]
        cloud = _ProviderEvents(calendar, providers.cloud, providers.advance_cloud)
        providers.on_forward = cloud.schedule_next

    def placed(self, node: int, now: float) -> None:  # noqa: ARG002
        """Schedule the job's arrival."""
        self._fogs[node].schedule_next()


class Batched:
    """Moves all providers every `BATCH` decisions: the same run with fewer events.

    Only for policies that observe no counts.
    """

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._decisions = 0

    def placed(self, node: int, now: float) -> None:  # noqa: ARG002
        """Advance the providers when a batch is complete."""
        self._decisions += 1
        if self._decisions % BATCH == 0:
            self._providers.advance_all(now)


class _ProviderEvents:
    """Keeps one provider's next event in the calendar."""

    def __init__(
        self, calendar: Calendar, provider: Provider, advance: Callable[[float], None]
    ) -> None:
        self._calendar, self._node, self._advance = calendar, provider.node, advance
        self._scheduled = inf
        """When the provider is to be advanced next."""
        self._unused: list[RecurringEvent] = []
        self.schedule_next()  # what will change at an idle node

    def schedule_next(self) -> None:
        """Schedule the provider's next event, unless one as early is scheduled."""
        time = self._node.next_event
        if time < self._scheduled:
            self._scheduled = time
            unused = self._unused
            event = unused.pop() if unused else RecurringEvent(self._calendar, self._occur)
            event.schedule(time, PROVIDERS_FIRST)

    def _occur(self, event: RecurringEvent) -> None:
        self._unused.append(event)
        now = self._calendar.now
        if now >= self._scheduled:  # else an earlier event has taken its place
            self._advance(now)
            self._scheduled = inf
            self.schedule_next()
