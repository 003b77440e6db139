"""The agent's model of all nodes, inferred from the total of their counts alone.

Which jobs a node gets, and when, is the agent's own knowledge; only the service times are not. A
population of guesses of them is annealed on the totals again and again, as decisions are taken. In
between, every node is taken to be as fast as the guesses are in the mean. A node about which they
disagree appears slow, because a slow one would cost more than a fast one would save: it is tried
when the better known ones are busy, and no earlier. So there is no phase of probing.
"""

from __future__ import annotations

import sys
from math import log

import numpy as np
import numpy.typing as npt

from fogveil.agent.availability import Available, least
from fogveil.agent.inference.drift import PageHinkley
from fogveil.agent.inference.estimator import Attempt
from fogveil.agent.inference.evidence import CloudedTotalEvidence, ThoroughTotalEvidence
from fogveil.agent.inference.node_belief import Finished
from fogveil.agent.inference.total_change import Change, find_change
from fogveil.agent.inference.transcript import Floats, Transcript
from fogveil.agent.inference.virtual_queue import VirtualQueue
from fogveil.agent.policy import AgentView, Observation
from fogveil.core.disclosure import CountKind

Bools = npt.NDArray[np.bool_]
FIRST_UPDATE = 12
"""Decisions before the first inference."""
GROWTH, LATER_GROWTH = 1.25, 2.0
"""Factors from one inference to the next: while it learns, and afterwards."""
LEARNED = 250
"""Decisions after which the estimates hardly change, if they explain the totals."""
LAST_UPDATE = 4000
RESTART_AFTER = 60
"""Decisions after which a population that does not explain the totals is compared with new ones."""
FAR_OFF = 2.0
"""An excess of misfit at which two new ones are tried at a time."""
STAGES = (1.3, 1.15)
"""Factors from stage to stage of a new search, in turn."""
KNOWN = 0.05
"""A service time is known when the guesses of its logarithm deviate by no more."""
WIDEST = 1.0
"""The largest deviation that makes a node appear slower."""
TOLERATED, ALARMING = 0.5, 40.0
"""Jobs by which the totals' mean may be off for good, and their sum beyond that for an alarm."""
BEFORE = 100
"""Decisions kept from before a change: their jobs are in the queues."""
DOUBT = 0.1
"""The deviation of a changed speed's logarithm."""


class TotalBelief:
    """Expected service times, backlogs and responses, from totals and own placements."""

    def __init__(self, view: AgentView) -> None:
        self._view = view
        self._decisions: list[tuple[Observation, int]] = []
        self._arrivals: list[float] = []
        """When the job of each decision arrives at its node."""
        self._residuals: list[float] = []
        """At each decision, by how many jobs the total was above the predicted one."""
        self._test = PageHinkley(delta=TOLERATED, threshold=ALARMING)
        self._steady = 0
        """The decision up to which the test had no evidence of a change."""
        self._stale = 0
        """The first decisions that are from before a change: they must not be inferred from."""
        self._absent: frozenset[int] = frozenset()
        """The nodes that took no jobs at the last decision."""
        self._held: set[int] = set()
        """Those of them that hold jobs which they do not tell: they have crashed."""
        self._excess = 0.0
        self.fired: list[tuple[float, Change | None]] = []
        """When a change was noticed, and what explains it."""
        self._attempts = 0
        self._attempt = self._begin_attempt()
        self._next_update = FIRST_UPDATE
        self._reported: set[int] = set()
        """Jobs of `finished` so far: other estimates must not report them again."""
        self.finished: list[list[Finished]] = [[] for _ in view.nodes]
        """Per node the jobs that have finished since the last decision, by known service times."""
        self._set_estimates()

    # --- what is observed ----------------------------------------------------------------------

    def update(self, view: AgentView) -> None:
        """Place by other latencies from now on."""
        self._view = view

    def observe(self, observation: Observation) -> None:
        """Continue to a decision instant; infer anew where that is due."""
        if len(self._decisions) >= self._next_update and not self._held:
            self._infer()
        self._observation = observation
        absent = _absent(observation, len(self._queues))
        for node in self._held - absent:
            self._return(node)
        for node, queue in enumerate(self._queues):
            finished = queue.advance(observation.time)
            self.finished[node] = self._unreported(finished) if self.known[node] else []
        assert observation.total is not None
        for node in absent - self._absent:
            self._notice_absence(node, observation.total)
        self._absent = absent
        self._residuals.append(observation.total - sum(self.counts))
        if self._learned and self._test.add(self._residuals[-1]):
            self._adapt()
        elif not self._test.statistic:
            self._steady = len(self._residuals)

    def placed(self, node: int, job: int, cluster: int, category: int) -> None:
        """Add a placement at the instant last observed."""
        self._decisions.append((self._observation, node))
        arrival = self._observation.time + self._view.up[cluster][category][node]
        self._arrivals.append(arrival)
        self._queues[node].place(arrival, job, category)

    # --- what is inferred ----------------------------------------------------------------------

    service: Floats
    """Expected service time, as table[node, category]."""
    deviations: Floats
    """Standard deviation of the logarithm of each service time."""
    factor_variance = 0.0
    """Service is taken to be constant."""

    known: Bools
    """Whether the service times of each node are known."""

    @property
    def counts(self) -> list[int]:
        """The count of each node, by the estimates."""
        waiting = self._view.count is CountKind.WAITING
        return [queue.waiting if waiting else queue.in_system for queue in self._queues]

    @property
    def backlogs(self) -> list[float]:
        """Expected time until each node has served the jobs that arrived there."""
        return [queue.backlog for queue in self._queues]

    @property
    def in_transit(self) -> list[int]:
        """Own jobs in transit to each node."""
        return [queue.in_transit for queue in self._queues]

    def overtaken(self, job: int, cluster: int, category: int) -> list[int]:
        """Return how many own jobs in transit to each node a job placed now would overtake."""
        now, up = self._observation.time, self._view.up[cluster][category]
        return [
            queue.overtaken_by(now + latency, job)
            for queue, latency in zip(self._queues, up, strict=True)
        ]

    def responses(self, job: int, cluster: int, category: int) -> list[float]:
        """Return the expected total response at each node for a job placed now."""
        now, up = self._observation.time, self._view.up[cluster][category]
        down = self._view.down[cluster][category]
        return [
            queue.finish(now + up[node], job, category) + down[node] - now
            for node, queue in enumerate(self._queues)
        ]

    def fastest(self, job: int, cluster: int, category: int, available: Available) -> int:
        """Return the node of the least expected response, the first of equal ones."""
        return least(self.responses(job, cluster, category), available)

    # --- inference -----------------------------------------------------------------------------

    def _infer(self) -> None:
        """Explain all totals so far, and compute the queues again from the new estimates."""
        self._forget(self._stale)
        decisions = len(self._decisions)
        transcript = Transcript(self._view, tuple(self._decisions), tuple(self._arrivals))
        evidence = self._attempt.extend(transcript)
        self._excess = evidence.excess(self._attempt.misfit)
        if decisions >= RESTART_AFTER and self._excess > 1:
            for _ in range(2 if self._excess > FAR_OFF else 1):
                self._search_anew(transcript)
        self._set_estimates()
        growth = LATER_GROWTH if self._learned else GROWTH
        self._next_update = int(growth * decisions) if decisions < LAST_UPDATE else sys.maxsize

    def _notice_absence(self, node: int, total: int) -> None:
        """Tell a crash from a node that drains: its jobs are not in the total any more."""
        count = self.counts[node]
        if abs(total - sum(self.counts) + count) < abs(total - sum(self.counts)):
            self._held.add(node)
            self._queues[node].hold()

    def _return(self, node: int) -> None:
        """Go on with a node that is back, and with the totals from now on: others mislead."""
        self._held.remove(node)
        self._queues[node].release(self._observation.time)
        self._forget(len(self._decisions))
        self._test.reset()
        self._next_update = LEARNED

    @property
    def _learned(self) -> bool:
        decided = len(self._decisions) >= LEARNED
        return decided and self._excess <= 1 and bool(self.known.mean() > 1 / 2)

    def _forget(self, decisions: int) -> None:
        """Drop the first decisions."""
        for kept in (self._decisions, self._arrivals, self._residuals):
            del kept[:decisions]
        self._steady = max(self._steady - decisions, 0)
        self._stale = max(self._stale - decisions, 0)

    def _adapt(self) -> None:
        """Go on with what has changed, and forget the totals from before."""
        decisions = self._decisions
        transcript = Transcript(self._view, tuple(decisions), tuple(self._arrivals))
        steady = min(self._steady, len(decisions) - 1)
        change = find_change(
            transcript,
            self.service,
            np.array(self._residuals[: len(decisions)]),
            decisions[steady][0].time,
            waiting=self._view.count is CountKind.WAITING,
        )
        self.fired.append((self._observation.time, change))
        self._forget(max(steady - BEFORE, 0))
        self._stale = min(steady, BEFORE)
        if change is None:
            self._attempt = self._begin_attempt()
            self._next_update = self._stale + FIRST_UPDATE
        else:
            place, sign = change.node, -1
            if place is None:
                assert change.category is not None
                place, sign = len(self._view.nodes) + change.category, 1
            self._attempt.population.shift(place, sign * log(change.factor), DOUBT)
            self._next_update = self._stale + LEARNED
            self._set_estimates()
        self._test.reset()

    def _begin_attempt(self) -> Attempt[ThoroughTotalEvidence]:
        """Begin another search; from the second on the Cloud may be to blame."""
        self._attempts += 1
        kind = CloudedTotalEvidence if self._attempts > 1 else ThoroughTotalEvidence
        return Attempt(kind, self._view, self._attempts)

    def _search_anew(self, transcript: Transcript) -> None:
        other = self._begin_attempt()
        evidence = other.search(transcript, STAGES[self._attempts % len(STAGES)])
        excess = evidence.excess(other.misfit)
        if excess < self._excess:
            self._attempt, self._excess = other, excess

    def _set_estimates(self) -> None:
        mean, self.deviations = self._attempt.population.logarithms
        self.service = np.exp(mean + np.minimum(self.deviations, WIDEST) ** 2 / 2)
        self.known = self.deviations.max(axis=1) <= KNOWN
        self._test.reset()
        self._queues = [VirtualQueue(times) for times in self.service.tolist()]
        for (observation, node), arrival in zip(self._decisions, self._arrivals, strict=True):
            queue = self._queues[node]
            queue.place(arrival, observation.job, observation.category)
            queue.advance(observation.time)

    def _unreported(self, finished: list[Finished]) -> list[Finished]:
        new = [job for job in finished if job.job not in self._reported]
        self._reported.update(job.job for job in new)
        return new


def _absent(observation: Observation, nodes: int) -> frozenset[int]:
    """Return the nodes that take no jobs."""
    if observation.available is None:
        return frozenset()
    return frozenset(range(nodes)) - frozenset(observation.available)
