"""The results of one section of the page: summaries of runs, averaged."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from fogveil.testbed.experiments.reproduce.plan import Evaluation
from fogveil.testbed.report.averages import MEASURES, PolicyAverage
from fogveil.testbed.report.statistics import Estimate, estimate, paired_ratio

RunSummary = dict[str, Any]
Rate = float | None
"""None is the scenario's own."""


class SectionResults:
    """Summaries by method, rate and horizon, then training, then evaluation seed."""

    def __init__(self) -> None:
        self._summaries: dict[tuple[str, Rate, float], dict[str, dict[int, RunSummary]]] = (
            defaultdict(lambda: defaultdict(dict))
        )
        self.levels: dict[str, str] = {}
        self.nodes: list[str] = []
        self.categories: list[str] = []

    @classmethod
    def read(cls, evaluations: Iterable[Evaluation]) -> SectionResults:
        """Return the results of finished evaluations: those of the plan, and of nothing else."""
        section = cls()
        for evaluation in evaluations:
            training = evaluation.training.folder.name if evaluation.training else ""
            for run in evaluation.comparison.runs():
                path = evaluation.comparison.path_of(run)
                result = json.loads(path.read_text(encoding="utf-8"))
                at = (evaluation.method, run.rate, run.horizon, training, run.seed)
                section.add(*at, result["summary"], result["level"])
                section.nodes, section.categories = result["nodes"], result["categories"]
        return section

    def add(
        self,
        method: str,
        rate: Rate,
        horizon: float,
        training: str,
        seed: int,
        summary: RunSummary,
        level: str = "full",
    ) -> None:
        """Add one run; `training` is empty for a method that is not trained here."""
        self._summaries[method, rate, horizon][training][seed] = summary
        self.levels[method] = level

    def trainings(self, method: str, rate: Rate, horizon: float) -> list[str]:
        """Return the names of a method's trainings; [""] where it is not trained here."""
        return sorted(self._summaries.get((method, rate, horizon), {}))

    def values(
        self, method: str, rate: Rate, horizon: float, measure: str, training: str | None = None
    ) -> dict[int, float]:
        """Return a measure by evaluation seed, averaged over the trainings (or of one)."""
        trainings = self._summaries.get((method, rate, horizon), {})
        chosen = list(trainings.values()) if training is None else [trainings[training]]
        by_seed = defaultdict(list)
        for runs in chosen:
            for seed, summary in runs.items():
                if summary.get(measure) is not None:
                    by_seed[seed].append(float(summary[measure]))
        return {seed: float(np.mean(values)) for seed, values in sorted(by_seed.items())}

    def by_training(
        self, method: str, rate: Rate, horizon: float, measure: str = "fog_loop"
    ) -> dict[str, float]:
        """Return a measure of each training, averaged over the evaluation seeds."""
        means = {}
        for name in self.trainings(method, rate, horizon):
            values = self.values(method, rate, horizon, measure, name)
            if values:
                means[name] = float(np.mean(list(values.values())))
        return means

    def mean(
        self, method: str, rate: Rate, horizon: float, measure: str = "fog_loop"
    ) -> Estimate | None:
        """Estimate a measure; with several trainings the interval is over these."""
        trainings = self.by_training(method, rate, horizon, measure)
        if len(trainings) > 1:
            return estimate(list(trainings.values()))
        values = list(self.values(method, rate, horizon, measure).values())
        return estimate(values) if values else None

    def ratio(
        self, method: str, rate: Rate, horizon: float, training: str | None = None, to: str = "setr"
    ) -> Estimate | None:
        """Estimate the paired ratio of the mean Fog loop to that of another method."""
        values = self.values(method, rate, horizon, "fog_loop", training)
        references = self.values(to, rate, horizon, "fog_loop")
        if not values or values.keys() != references.keys():
            return None
        return paired_ratio(list(values.values()), list(references.values()))

    def averages(self, methods: Iterable[str], horizons: Iterable[float]) -> list[PolicyAverage]:
        """Return what figures show of some methods, in this order."""
        averages = []
        for horizon in horizons:
            for method in methods:
                rates = {
                    rate for name, rate, at in self._summaries if (name, at) == (method, horizon)
                }
                for rate in sorted(rates, key=lambda rate: -(rate or 0)):
                    estimates = {m: self.mean(method, rate, horizon, m) for m in MEASURES}
                    known = {name: value for name, value in estimates.items() if value}
                    level = self.levels[method]
                    averages.append(PolicyAverage(method, level, rate, horizon, known, None))
        return averages

    def placed(self, method: str, rate: Rate, horizon: float) -> Any:
        """Return how many workloads went where, of all runs: [cluster, category, node]."""
        trainings = self._summaries.get((method, rate, horizon), {})
        summaries = [summary for runs in trainings.values() for summary in runs.values()]
        return sum(np.array(summary["placed"]) for summary in summaries)
