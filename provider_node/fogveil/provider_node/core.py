"""A provider in a federated run, without transport.

Placements and grants of simulated time come in; counts, aggregates, results and journal lines go
out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nextafter
from typing import NamedTuple

from fogveil.core.errors import MisbehaviourError
from fogveil.core.randomness import drawn
from fogveil.protocol.identity import AGENT
from fogveil.provider_node.forecast import FinishForecast
from fogveil.provider_node.node import Lost, Served
from fogveil.provider_node.outbox import CLOUD, RESULT_SLOT, Outbox, aggregate_slot
from fogveil.provider_node.provider import Provider, ProviderConfig
from fogveil.provider_node.timetable import Effect
from fogveil.v1.clock_pb2 import Grant
from fogveil.v1.full_pb2 import LookRequest, LookResponse, Resources
from fogveil.v1.workload_pb2 import Aggregates, Feedback, Placement, Result


class View(NamedTuple):
    """What level `full` discloses of an instant."""

    now: float
    backlog: float
    resources: Resources


@dataclass(slots=True)
class WindowOutput:
    """What follows from one grant."""

    counts: list[int] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    passed_on: list[bool] = field(default_factory=list)
    aggregates: list[Aggregates] = field(default_factory=list)
    feedback: dict[str, list[Feedback]] = field(default_factory=dict)
    """By sources process."""


class ProviderCore:
    """One provider, fog or cloud, in a run of several episodes.

    Where it `pads`, and its discipline allows, the sizes of its messages follow from public facts.
    """

    def __init__(
        self,
        config: ProviderConfig,
        owners: tuple[str, ...],
        *,
        pads: bool = True,
        keeps_views: bool = False,
    ) -> None:
        """Begin empty; `keeps_views` keeps what level `full` discloses at each window."""
        self._config = config
        self._keeps_views = keeps_views
        self._owners = owners
        """The sources process of each cluster."""
        self._pads = pads and config.sizes_are_public
        self._aggregate_slot = aggregate_slot(
            len(owners), len(config.categories), demands_vary=config.demands_vary
        )
        self.begin(0, 0)

    def begin(self, episode: int, draw: int) -> None:
        """Begin an episode with an empty node."""
        config = replace(self._config, seed=drawn(self._config.seed, draw))
        self.episode = episode
        self.now = 0.0
        self.views: list[View] = []
        """By window of this episode, where they are kept."""
        self.demands: dict[int, float] = {}
        """What jobs demand that bring their own."""
        self.provider = Provider(config, self.demands)
        self._forecast: FinishForecast | None = None
        """What will become of the jobs that arrived, where their results are sent at once."""
        if self._pads and not config.is_cloud:
            stops = self.provider.timetable.stops
            service = self.provider.timed_service
            self._forecast = FinishForecast(service, config.servers, stops)
        self._jobs: dict[int, Placement] = {}
        """Jobs of which nothing was sent yet."""
        self._senders: dict[int, str] = {}
        """Who sent each job of this episode."""
        self._held: deque[list[Placement]] = deque()
        """Jobs that were accepted and that no grant has made due yet, by message."""
        self._released = 0
        """Jobs of this episode that the node was given."""
        slots = (self._aggregate_slot, RESULT_SLOT) if self._pads else (0, 0)
        self._outbox = Outbox(episode, *slots)

    # --- placements ------------------------------------------------------------------------------

    def accept(self, placements: Sequence[Placement], sender: str = AGENT) -> int:
        """Take the jobs of one message and return how many they are.

        They reach the node when a grant makes them due. A job that cannot be raises an error that
        names its sender: the agent, or, at the Cloud, a Fog provider.
        """
        for placement in placements:
            self._take(placement, sender)
        if placements:
            self._held.append(list(placements))
        return len(placements)

    def accept_aggregates(self, message: Aggregates, sender: str) -> None:
        """Take the jobs that a Fog provider sends on to the Cloud.

        What follows from them will be padded as if all slots of the message had held jobs of each
        sources process: which of them did is not public.
        """
        self.accept(message.aggregates, sender)
        if self._pads:
            slots = max(message.ByteSize() // self._aggregate_slot, len(message.aggregates))
            for owner in dict.fromkeys(self._owners):
                self._outbox.add_slots(owner, slots)

    def _take(self, placement: Placement, sender: str) -> None:
        fault = self._fault(placement, sender)
        if fault:
            who = "the agent" if sender == AGENT else sender
            name = self._config.name
            raise MisbehaviourError(
                sender, f"{who} sent job {placement.job} to {name}, but {fault}"
            )
        if self._config.demands_vary:
            self.demands[placement.job] = placement.demand
        self._senders[placement.job] = sender
        self._jobs[placement.job] = placement

    def _fault(self, placement: Placement, sender: str) -> str | None:
        first = self._senders.get(placement.job)
        if first is not None:
            return "had sent it before" if first == sender else f"{first} had sent it before"
        if placement.category >= len(self._config.categories):
            return f"category {placement.category} is unknown"
        if placement.cluster >= len(self._owners):
            return f"cluster {placement.cluster} is unknown"
        if not isfinite(placement.arrival) or placement.arrival <= self.now:
            return f"its arrival at {placement.arrival} is not after {self.now:.6g}"
        if self._config.demands_vary and not 0 < placement.demand < inf:
            return f"its demand is {placement.demand}"
        return None

    # --- windows ---------------------------------------------------------------------------------

    def _release(self, grant: Grant) -> None:
        """Hand the jobs that are due to the node, message by message.

        A grant to a Fog provider says how many jobs were placed on it by then: the clock knows how
        many workloads were emitted, and the agent sends one message per window. Jobs beyond that
        are nobody's. The agent could probe the node with them, so none of their message is served.
        """
        due = grant.expect[0] if grant.expect and not self._config.is_cloud else inf
        while self._held and self._released + len(self._held[0]) <= due:
            for job in self._held.popleft():
                self.provider.accept(job.job, job.category, job.arrival)
                if self._forecast:
                    self._forecast.accept(job.job, job.category, job.arrival)
                self._released += 1
        if self._released < due < inf or (grant.last and self._held):
            excess = sum(map(len, self._held)) - (0 if grant.last else due - self._released)
            raise MisbehaviourError(
                AGENT,
                f"the agent placed {excess:g} jobs more on {self._config.name} than workloads were "
                "granted to it; they are not served",
            )

    def process_window(self, grant: Grant) -> WindowOutput:
        """Go through a window of simulated time whose jobs have all been accepted."""
        self._release(grant)
        output, until = WindowOutput(), grant.until
        for instant in grant.observe_at[:]:  # a copy: iterating the protobuf field is slow
            self._advance(instant, output)
            output.counts.append(self.provider.count)
        self._advance(until, output)
        if until != inf:
            self.now = until
        if self._keeps_views and output.counts:
            self.views.append(self.view())
        if self._forecast and (grant.forward or grant.flush):
            jobs = self._forecast.advance(self._known_until(until))
            self._send_later(jobs, self._forecast.take_lost())
        if grant.forward and not self._config.is_cloud:
            output.aggregates = self._outbox.take_aggregates()
        if grant.flush:
            # The Cloud cannot tell before when its jobs finish: it keeps their results to the end.
            complete = grant.last or not (self._pads and self._config.is_cloud)
            take = self._outbox.take_feedback if complete else self._outbox.empty_feedback
            output.feedback = {owner: take(owner) for owner in dict.fromkeys(self._owners)}
        return output

    def _advance(self, until: float, output: WindowOutput) -> None:
        if until < self.provider.node.next_event:
            return
        served = self.provider.advance(until)
        output.served += served
        output.passed_on += [self.provider.passes_on(job[0]) for job in served]
        lost = self.provider.node.take_lost()
        if not self._forecast:
            self._send_later(served, lost)

    def _known_until(self, until: float) -> float:
        """Return until when all arrivals are known: where nothing is placed here in a crash, too.

        So what is on its way to a crash that loses it is reported at the crash.
        """
        for stop in self.provider.timetable.stops:
            if stop.effect is Effect.LOSE and stop.at == until:
                return nextafter(stop.back, -inf)
        return until

    def _send_later(self, jobs: list[Served], lost: list[Lost]) -> None:
        """Put into the outbox what follows from jobs whose finish, or loss, is known."""
        outbox, provider, is_cloud = self._outbox, self.provider, self._config.is_cloud
        numbers = [*(job[0] for job in jobs), *(job[0] for job in lost)]
        placed = {job: self._jobs.pop(job) for job in numbers}
        for job, _, _, again in lost:
            del self._senders[job]  # it may be placed here once more
            outbox.add_result(self._owners[placed[job].cluster], Result(job=job, again=again))
        served = [job for job in jobs if job[4] < inf]
        if self._forecast:
            outbox.add_slots(CLOUD, len(placed))
            for placement in placed.values():
                outbox.add_slots(self._owners[placement.cluster])
        for job, _, _, _, finished in served:
            if not is_cloud or provider.passes_on(job):
                owner = self._owners[placed[job].cluster]
                outbox.add_result(owner, Result(job=job, finished=finished))
        if not is_cloud:
            for job, category, arrival in provider.aggregates(served):
                demand = self.demands[job] if self._config.demands_vary else None
                outbox.add_aggregate(
                    Placement(
                        job=job,
                        cluster=placed[job].cluster,
                        category=category,
                        arrival=arrival,
                        demand=demand,
                    )
                )

    # --- level full ------------------------------------------------------------------------------

    def view(self, window: int | None = None) -> View:
        """Return what can be seen now, or could be at an earlier window."""
        if window is not None:
            return self.views[window]
        provider, now = self.provider, self.now
        ipt = provider.timetable.ipt.at(now)
        expected = provider.expected_at(now)
        resources = Resources(ipt=ipt, ram=self._config.ram, expected=expected)
        return View(now, provider.node.backlog(now), resources)

    def answer_look(self, request: LookRequest, view: View) -> LookResponse:
        """Answer what only level `full` may ask: the backlog, and the service time of a job."""
        provider, job = self.provider, request.job
        known = job in self.demands  # answering changes nothing
        if self._config.demands_vary and not known:
            self.demands[job] = request.demand
        service = provider.timed_service(job, request.category, view.now, view.now)
        if not known:
            self.demands.pop(job, None)
        return LookResponse(resources=view.resources, backlog=view.backlog, service=service)
