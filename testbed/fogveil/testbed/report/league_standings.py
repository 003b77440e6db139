"""What policies reached in the league: by scenario, as one score, and their places in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from fogveil.core.disclosure import Level
from fogveil.testbed.report.averages import Result, average_runs, measured
from fogveil.testbed.report.statistics import Estimate, Score, geometric_mean_ratio

SHIPPED, ALL, FITTING = "shipped", "all", "fitting"
"""Sets of scenarios that a score is over: those that ship; these and the ones on real data; and,
for a policy that does not run on all that ship, those that it runs on."""


class ScenarioResult(NamedTuple):
    """A policy on one scenario of the league."""

    fog_loop: Estimate
    ratio: Estimate
    """To the oracle's Fog loop, paired by seed."""
    unserved: Estimate


class Standing(NamedTuple):
    """A policy in the league."""

    policy: str
    level: str
    scores: Mapping[str, Score]
    """By set of scenarios; a set with a scenario that the policy did not run on has none."""
    scenarios: Mapping[str, ScenarioResult]
    """Empty for one that was published."""

    @property
    def rank(self) -> tuple[Level, float]:
        """The order of standings: by level, then by score; those without a comparable one last."""
        score = self.scores.get(SHIPPED)
        return Level.parse(self.level), score.mean if score else inf

    @property
    def worst(self) -> tuple[str, ScenarioResult]:
        """The scenario on which the ratio to the oracle is largest."""
        return max(self.scenarios.items(), key=lambda item: item[1].ratio.mean)


@dataclass(frozen=True)
class Standings:
    """The outcome of the league for some policies."""

    version: int
    digest: str
    seeds: tuple[int, ...]
    quick: bool
    oracle: str
    sets: Mapping[str, tuple[str, ...]]
    """The scenarios of each set that was run."""
    left_out: Mapping[str, str]
    """Scenarios that were not run, each with the files that it needs."""
    misfits: Mapping[str, str]
    """Policies that do not run on all scenarios, each with a sentence that says why."""
    policies: Sequence[Standing]

    @property
    def ordered(self) -> list[Standing]:
        """The policies by level, the best of each level first."""
        return sorted(self.policies, key=lambda standing: standing.rank)

    def place(self, standing: Standing) -> str:
        """Return a policy's place among those of its level, as in 2 of 4."""
        rivals = [s for s in self.ordered if s.level == standing.level and SHIPPED in s.scores]
        return f"{rivals.index(standing) + 1} of {len(rivals)}" if standing in rivals else "–"

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "league": self.version,
            "digest": self.digest,
            "comparable": not self.quick,
            "oracle": self.oracle,
            "seeds": list(self.seeds),
            "sets": {name: list(scenarios) for name, scenarios in self.sets.items()},
            "left_out": dict(self.left_out),
            "misfits": dict(self.misfits),
            "policies": [
                {
                    "policy": standing.policy,
                    "level": standing.level,
                    "place": self.place(standing),
                    "scores": {name: s._asdict() for name, s in standing.scores.items()},
                    "scenarios": {
                        name: {key: value._asdict() for key, value in result._asdict().items()}
                        for name, result in standing.scenarios.items()
                    },
                }
                for standing in self.ordered
            ],
        }


def standing_of(
    label: str,
    runs: Mapping[str, Sequence[Result]],
    oracle: Mapping[str, Sequence[Result]],
    sets: Mapping[str, Sequence[str]],
) -> Standing:
    """Compute a policy's standing from its runs and the oracle's, by scenario."""
    scenarios, pairs, level = {}, {}, ""
    for name, results in runs.items():
        average = average_runs(label, None, 0.0, results, oracle[name])
        assert average.ratio is not None
        measures = average.measures
        scenarios[name] = ScenarioResult(measures["fog_loop"], average.ratio, measures["unserved"])
        pairs[name] = (measured(results, "fog_loop"), measured(oracle[name], "fog_loop"))
        level = average.level
    scored = {key: names for key, names in sets.items() if all(name in pairs for name in names)}
    if SHIPPED not in scored:
        scored = {FITTING: list(pairs)}
    scores = {
        key: geometric_mean_ratio([pairs[name] for name in names]) for key, names in scored.items()
    }
    return Standing(label, level, scores, scenarios)


def published_standings(content: Mapping[str, Any]) -> list[Standing]:
    """Return the standings that an earlier `Standings.plain` holds, without their scenarios."""
    return [
        Standing(
            row["policy"],
            row["level"],
            {name: Score(**score) for name, score in row["scores"].items()},
            {},
        )
        for row in content["policies"]
    ]
