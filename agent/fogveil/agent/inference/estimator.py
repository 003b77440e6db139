"""The attacker's estimators: service times from a transcript and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fogveil.agent.inference.evidence import CountEvidence, Evidence, TotalEvidence
from fogveil.agent.inference.fog_belief import FogBelief
from fogveil.agent.inference.fog_bounds import Model
from fogveil.agent.inference.population import Population, Prior
from fogveil.agent.inference.transcript import Floats, Transcript
from fogveil.agent.policy import AgentView
from fogveil.core.disclosure import Level
from fogveil.core.randomness import drawn

FIRST_STAGE = 30
"""Decisions in the first stage of a search."""
SELECTION = 200
"""Decisions after which a wrong explanation shows: here the best attempt is selected."""


class ServiceEstimate(NamedTuple):
    """What an attacker infers from its decisions so far."""

    service: Floats
    """Service times as table[node, category], in simulated time."""
    explained: bool
    """Whether they explain the observations, up to chance and the Cloud's part."""


def infer(level: Level, transcript: Transcript, marks: Iterable[int]) -> dict[int, ServiceEstimate]:
    """Return the estimate at each mark (a number of decisions), from the decisions up to it."""
    marks = sorted(set(marks))
    if level is Level.TOTAL:
        searched = _search(TotalEvidence, transcript, marks)
        return {mark: estimate for mark, (estimate, _) in searched.items()}
    return _infer_from_counts(transcript, marks)


def _infer_from_counts(transcript: Transcript, marks: list[int]) -> dict[int, ServiceEstimate]:
    """Search where service appears constant; elsewhere use the beliefs of CI-SETR.

    Counts that contradict constant service are recognised by CI-SETR's bounds.
    """
    believed, constant = _believe(transcript, marks)
    searched = _search(CountEvidence, transcript, constant) if constant else {}
    explained = {mark: estimate for mark, (estimate, _) in searched.items() if estimate.explained}
    return believed | explained


def _believe(
    transcript: Transcript, marks: list[int]
) -> tuple[dict[int, ServiceEstimate], list[int]]:
    """Return CI-SETR's beliefs at the marks, and the marks at which service appears constant."""
    view = transcript.view
    belief = FogBelief(view)
    believed: dict[int, ServiceEstimate] = {}
    constant = []
    for number, (observation, node) in enumerate(transcript.decisions, 1):
        belief.observe(observation)
        if number in marks:
            believed[number] = ServiceEstimate(belief.service, explained=False)
            if belief.bounds.model is Model.PRODUCT:
                constant.append(number)
        belief.placed(node, observation.job, observation.cluster, observation.category)
    return believed, constant


Kind = TypeVar("Kind", bound=Evidence)


class Attempt(Generic[Kind]):
    """One search for an explanation, in stages of growing evidence."""

    def __init__(self, kind: type[Kind], view: AgentView, number: int) -> None:
        self._kind = kind
        seed = drawn(view.seed, number + 1)
        random = np.random.Generator(np.random.Philox(seed))
        self.population = Population(Prior(view), random, kind.most_guesses)
        self.estimates: dict[int, tuple[ServiceEstimate, float]] = {}
        """By the number of decisions: the estimate and its misfit."""

    @property
    def misfit(self) -> float:
        """The misfit of the guess that explains the evidence best."""
        return self.population.misfit

    def extend(self, transcript: Transcript) -> Kind:
        """Continue with a transcript that extends those before; return its evidence."""
        evidence = self._kind(transcript)
        self.population.explain(evidence)
        return evidence

    def proceed(self, transcript: Transcript, stages: Iterable[int]) -> None:
        """Continue with more of a transcript and store the estimate of each stage."""
        for stage in stages:
            evidence = self.extend(transcript.first(stage))
            estimate = ServiceEstimate(self.population.service, evidence.explained(self.misfit))
            self.estimates[stage] = estimate, self.misfit

    def search(self, transcript: Transcript, growth: float) -> Kind:
        """Explain a whole transcript, in stages that grow by a factor; return its evidence."""
        *stages, _ = _stages(0, len(transcript), growth, [])
        self.proceed(transcript, stages)
        return self.extend(transcript)


def _search(
    kind: type[Evidence], transcript: Transcript, marks: list[int]
) -> dict[int, tuple[ServiceEstimate, float]]:
    """Search from several starts until one explains the evidence; continue with the best."""
    last = marks[-1]
    selection = min(last, SELECTION)
    attempts = []
    for number, growth in enumerate(kind.growths):
        attempt = Attempt(kind, transcript.view, number)
        attempt.proceed(transcript, _stages(0, selection, growth, marks))
        attempts.append(attempt)
        if attempt.estimates[selection][0].explained:
            break
    best = min(attempts, key=lambda attempt: attempt.estimates[selection][1])
    best.proceed(transcript, _stages(selection, last, kind.growths[0], marks))
    return {
        mark: min(
            (attempt.estimates[mark] for attempt in attempts if mark in attempt.estimates),
            key=lambda estimate: estimate[1],
        )
        for mark in marks
    }


def _stages(after: int, last: int, growth: float, marks: list[int]) -> list[int]:
    """Return numbers of decisions that grow by a factor, and the marks among them."""
    stages = {mark for mark in marks if after < mark <= last} | {last} - {after}
    stage = float(FIRST_STAGE)
    while stage < last:
        if stage > after:
            stages.add(int(stage))
        stage *= growth
    return sorted(stages)
