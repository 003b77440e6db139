"""What a provider does in a window of simulated time, without transport.

Placements come in, grants come in; counts, aggregates, results and journal lines go out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite

from fogveil.ordering import parts
from fogveil.randomness import drawn
from fogveil.v1.clock_pb2 import Grant
from fogveil.v1.full_pb2 import LookRequest, LookResponse, Resources
from fogveil.v1.workload_pb2 import Aggregates, Feedback, Placement, Result
from provider_node.node import Served
from provider_node.provider import Provider, ProviderConfig

log = logging.getLogger("provider_node")

CLOUD = ""
"""Stands for the one who gets aggregates."""


@dataclass(slots=True)
class Output:
    """What follows from one grant."""

    counts: list[int] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    passed_on: list[bool] = field(default_factory=list)
    aggregates: list[Aggregates] = field(default_factory=list)
    feedback: dict[str, list[Feedback]] = field(default_factory=dict)
    """By sources process."""


@dataclass(slots=True)
class _Job:
    cluster: int
    demand: float | None


class Serving:
    """One provider, fog or cloud, in a run of several episodes."""

    def __init__(self, config: ProviderConfig, owners: tuple[str, ...]) -> None:
        self._config = config
        self._owners = owners
        """The sources process of each cluster."""
        self._is_cloud = not config.cloud_latency
        self.begin(0, 0)

    def begin(self, episode: int, draw: int) -> None:
        """Begin an episode with an empty node."""
        config = replace(self._config, seed=drawn(self._config.seed, draw))
        self.episode = episode
        self.now = 0.0
        self._demands: dict[int, float] = {}
        self.provider = Provider(config, self._demands)
        self._jobs: dict[int, _Job] = {}
        self._seen: set[int] = set()
        self._aggregates: list[Placement] = []
        self._results: dict[str, list[Result]] = {name: [] for name in set(self._owners)}
        self._sent: Counter[str] = Counter()
        """Messages to each sources process, and to the Cloud."""

    # --- what comes in ---------------------------------------------------------------------------

    def accept(self, placement: Placement) -> bool:
        """Take a job; one that cannot be is dropped, and the run goes on as if it never came."""
        fault = self._fault(placement)
        if fault:
            log.warning("dropped the placement of job %d: %s", placement.job, fault)
            return False
        job, demand = placement.job, None
        if self._config.demands_vary:
            demand = self._demands[job] = placement.demand
        self._seen.add(job)
        self._jobs[job] = _Job(placement.cluster, demand)
        self.provider.accept(job, placement.category, placement.arrival)
        return True

    def _fault(self, placement: Placement) -> str | None:
        if placement.job in self._seen:
            return "it was placed here before"
        if placement.category >= len(self._config.categories):
            return f"category {placement.category} is unknown"
        if placement.cluster >= len(self._owners):
            return f"cluster {placement.cluster} is unknown"
        if not isfinite(placement.arrival) or placement.arrival <= self.now:
            return f"it would arrive at {placement.arrival}, and it is {self.now:.6g}"
        if self._config.demands_vary and not 0 < placement.demand < inf:
            return f"its demand is {placement.demand}"
        return None

    # --- what a grant asks for -------------------------------------------------------------------

    def work(self, grant: Grant) -> Output:
        """Go through a window whose jobs have all been accepted."""
        output, until = Output(), grant.until
        for instant in grant.observe_at[:]:  # a list: going through the field itself is slow
            self._advance(instant, output)
            output.counts.append(self.provider.count)
        self._advance(until, output)
        if until != inf:
            self.now = until
        if grant.forward and not self._is_cloud:
            for part, more in parts(self._aggregates):
                numbers = self._numbers(CLOUD)
                output.aggregates.append(Aggregates(**numbers, aggregates=part, more=more))
            self._aggregates = []
        if grant.flush:
            for owner, results in self._results.items():
                output.feedback[owner] = [
                    Feedback(**self._numbers(owner), results=part, more=more)
                    for part, more in parts(results)
                ]
                self._results[owner] = []
        return output

    def _numbers(self, receiver: str) -> dict[str, int]:
        """Number the next message to somebody."""
        self._sent[receiver] += 1
        return {"episode": self.episode, "sequence": self._sent[receiver]}

    def _advance(self, until: float, output: Output) -> None:
        if until < self.provider.node.next_event:
            return
        served = self.provider.advance(until)
        if not served:
            return
        output.served += served
        jobs = self._jobs
        going_on: Mapping[int, float] = {}
        if not self._is_cloud:
            going_on = {job: arrival for job, _, arrival in self.provider.aggregates(served)}
        for job, category, _, _, finished in served:
            given = jobs.pop(job)
            if self._is_cloud:
                on = self.provider.is_fed_back(job)
            elif on := job in going_on:
                self._aggregates.append(
                    Placement(
                        job=job,
                        cluster=given.cluster,
                        category=category,
                        arrival=going_on[job],
                        demand=given.demand,
                    )
                )
            output.passed_on.append(on)
            if on or not self._is_cloud:
                result = Result(job=job, finished=finished)
                self._results[self._owners[given.cluster]].append(result)

    # --- level full ------------------------------------------------------------------------------

    def look(self, request: LookRequest) -> LookResponse:
        """Answer what only level `full` may ask."""
        provider, job = self.provider, request.job
        known = job in self._demands  # a question changes nothing
        if self._config.demands_vary and not known:
            self._demands[job] = request.demand
        service = provider.service_time(job, request.category)
        if not known:
            self._demands.pop(job, None)
        return LookResponse(backlog=provider.node.backlog(self.now), service=service)

    def resources(self) -> Resources:
        """Return what only level `full` may know."""
        config = self._config
        return Resources(ipt=config.ipt, ram=config.ram, expected=self.provider.expected)
