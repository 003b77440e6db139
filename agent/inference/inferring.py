"""The attackers' estimators: from a transcript to service times, and nothing else goes in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from agent.inference.evidence import CountEvidence, Evidence, TotalEvidence
from agent.inference.fog_belief import FogBelief
from agent.inference.fog_bounds import Model
from agent.inference.population import Population, Prior
from agent.inference.transcript import Floats, Transcript, as_table
from fogveil.disclosure import Level
from fogveil.randomness import drawn

FIRST = 30
"""Decisions that the first stage of a search begins with."""
SORTING = 200
"""Decisions after which a wrong explanation gives itself away: here the best attempt is chosen."""


class Found(NamedTuple):
    """What an attacker infers from its decisions so far."""

    service: Floats
    """Service times as table[node, category], in simulated time."""
    explained: bool
    """Whether they explain all that was seen, but for what chance or the Cloud may have done."""


def infer(level: Level, transcript: Transcript, marks: Iterable[int]) -> dict[int, Found]:
    """Return what is inferred by each mark, from no more than the decisions up to it."""
    chosen = sorted(set(marks))
    if level is Level.TOTAL:
        searched = _search(TotalEvidence, transcript, chosen)
        return {mark: found for mark, (found, _) in searched.items()}
    return _infer_from_counts(transcript, chosen)


def _infer_from_counts(transcript: Transcript, marks: list[int]) -> dict[int, Found]:
    """Search where service looks constant; else believe what a deciding agent would believe.

    Counts that contradict constant service show themselves as such in the agent's own bounds.
    """
    believed, constant = _believe(transcript, marks)
    searched = _search(CountEvidence, transcript, constant) if constant else {}
    sure = {mark: found for mark, (found, _) in searched.items() if found.explained}
    return believed | sure


def _believe(transcript: Transcript, marks: list[int]) -> tuple[dict[int, Found], list[int]]:
    """Replay the transcript into the belief that CI-SETR decides by."""
    view = transcript.view
    belief = FogBelief(view)
    believed: dict[int, Found] = {}
    constant = []
    for number, (seen, node) in enumerate(transcript.decisions, 1):
        assert seen.counts is not None
        belief.observe(seen.time, seen.counts)
        if number in marks:
            believed[number] = Found(as_table(view, belief.service), explained=False)
            if belief.bounds.model is Model.PRODUCT:
                constant.append(number)
        belief.placed(node, seen.job, seen.cluster, seen.category)
    return believed, constant


class _Attempt:
    """One search for an explanation, through stages of ever more evidence."""

    def __init__(self, kind: type[Evidence], transcript: Transcript, number: int) -> None:
        self._kind, self._transcript = kind, transcript
        seed = drawn(transcript.view.seed, number + 1)
        random = np.random.Generator(np.random.Philox(seed))
        self._population = Population(Prior(transcript.view), random)
        self.found: dict[int, tuple[Found, float]] = {}

    def go_on(self, stages: Iterable[int]) -> None:
        """Take in more evidence, and note what is found at each stage."""
        for stage in stages:
            evidence = self._kind(self._transcript.first(stage))
            self._population.explain(evidence)
            misfit = self._population.misfit
            found = Found(self._population.service, evidence.explained(misfit))
            self.found[stage] = found, misfit


def _search(
    kind: type[Evidence], transcript: Transcript, marks: list[int]
) -> dict[int, tuple[Found, float]]:
    """Search from several beginnings while none explains the evidence; go on with the best."""
    last = marks[-1]
    sorting = min(last, SORTING)
    attempts = []
    for number, growth in enumerate(kind.growths):
        attempt = _Attempt(kind, transcript, number)
        attempt.go_on(_stages(0, sorting, growth, marks))
        attempts.append(attempt)
        if attempt.found[sorting][0].explained:
            break
    best = min(attempts, key=lambda attempt: attempt.found[sorting][1])
    best.go_on(_stages(sorting, last, kind.growths[0], marks))
    return {
        mark: min(
            (attempt.found[mark] for attempt in attempts if mark in attempt.found),
            key=lambda found: found[1],
        )
        for mark in marks
    }


def _stages(after: int, last: int, growth: float, marks: list[int]) -> list[int]:
    """Return numbers of decisions that grow by a factor, with the marks among them."""
    stages = {mark for mark in marks if after < mark <= last} | {last} - {after}
    stage = float(FIRST)
    while stage < last:
        if stage > after:
            stages.add(int(stage))
        stage *= growth
    return sorted(stages)
