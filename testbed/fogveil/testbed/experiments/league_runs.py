"""The runs of the league: which policy runs where, how long that takes, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import fogveil.agent.policies as policies
from fogveil.core.errors import InputError
from fogveil.testbed.experiments import league
from fogveil.testbed.experiments.comparison import (
    ComparedRun,
    Comparison,
    prepare,
    results_by_policy,
)
from fogveil.testbed.experiments.league import Entry
from fogveil.testbed.report.averages import Result
from fogveil.testbed.report.league_standings import ALL, SHIPPED, Standings, standing_of
from fogveil.testbed.scenario.world import build_world

SECONDS = {"veil-total": 10.0, "electre-queue": 0.6, "veil": 0.5, "ci-setr": 0.25}
"""CPU seconds of a run on average, when last measured; runs that are done say better."""
SHIPPED_SECONDS, OWN_SECONDS = 0.06, 0.5
"""The same for the other policies: those that ship, and users' own."""

Task = tuple[Comparison, ComparedRun]


class Misfit(NamedTuple):
    """Where a policy cannot run."""

    scenarios: tuple[str, ...]
    reason: str
    """Why not on the first of them."""


@dataclass(frozen=True)
class LeagueRuns:
    """Policies entered in the league, and the folders of results and of real data."""

    policies: tuple[str, ...]
    folder: Path
    data: Path | None = None
    quick: bool = False

    @property
    def out(self) -> Path:
        """The folder of this version's results: those of another one are never found in it."""
        return self.folder / f"league-{league.VERSION}-{league.digest()}"

    @property
    def seeds(self) -> range:
        """The seeds of every scenario."""
        return league.QUICK_SEEDS if self.quick else league.SEEDS

    @cached_property
    def available(self) -> tuple[list[Entry], list[Entry]]:
        """The entries that can be run, and those left out because their data is missing."""
        return league.available(self.data)

    @cached_property
    def misfits(self) -> dict[str, Misfit]:
        """The policies that run on some scenarios only, such as agents trained for one shape.

        A policy that runs on none is refused.
        """
        for policy in self.policies:
            policies.find(policy)  # one that does not exist, or is no policy, is no misfit
        reasons: dict[str, dict[str, str]] = {}
        entries = self.available[0]
        for entry in entries:
            scenario = entry.load(self.data)
            view = build_world(scenario.model_copy(update={"disclosure": "full"})).agent
            for policy in self.policies:
                try:
                    policies.load(policy, view)
                except InputError as error:
                    reasons.setdefault(policy, {})[entry.name] = str(error)
        misfits = {}
        for policy, why in reasons.items():
            first = next(iter(why.values()))
            if len(why) == len(entries):
                raise InputError(f"--policy {policy}: runs on no scenario of the league: {first}")
            misfits[policy] = Misfit(tuple(why), first)
        return misfits

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """A comparison per scenario, of the oracle and the policies that run on it."""
        comparisons = {}
        for entry in self.available[0]:
            absent = {p for p, misfit in self.misfits.items() if entry.name in misfit.scenarios}
            comparisons[entry.name] = Comparison(
                file=entry.file,
                overrides=entry.overrides_for(self.data),
                policies=tuple(p for p in self._entered if p not in absent),
                rates=(None,),
                horizons=(entry.load(self.data).horizon,),
                seeds=len(self.seeds),
                out=self.out / entry.name,
            )
        return comparisons

    @property
    def _entered(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.policies, league.ORACLE)))

    def prepare(self) -> tuple[list[Task], list[Task]]:
        """Check everything before anything runs; return finished runs and outstanding ones."""
        finished: list[Task] = []
        outstanding: list[Task] = []
        for comparison in self.comparisons.values():
            done, to_do = prepare(comparison)
            finished += [(comparison, run) for run in done]
            outstanding += [(comparison, run) for run in to_do]
        return finished, outstanding

    def evaluate(self) -> Standings:
        """Read the results and compute every policy's standing."""
        runs: dict[str, dict[str, list[Result]]] = {policy: {} for policy in self._entered}
        for name, comparison in self.comparisons.items():
            for (policy, _, _), results in results_by_policy(comparison).items():
                runs[policy][name] = results
        entries, left_out = self.available
        sets = {SHIPPED: league.SHIPPED}
        if not left_out:
            sets[ALL] = tuple(entry.name for entry in entries)
        everybody = replace(next(iter(self.comparisons.values())), policies=self._entered)
        labels = {policy: everybody.label_of(policy) for policy in self._entered}
        oracle = runs[league.ORACLE]
        return Standings(
            version=league.VERSION,
            digest=league.digest(),
            seeds=tuple(self.seeds),
            quick=self.quick,
            oracle=league.ORACLE,
            sets=sets,
            left_out={entry.name: entry.needed for entry in left_out},
            misfits={labels[p]: _sentence(m, len(entries)) for p, m in self.misfits.items()},
            policies=[standing_of(labels[p], runs[p], oracle, sets) for p in self._entered],
        )


def _sentence(misfit: Misfit, entries: int) -> str:
    there = entries - len(misfit.scenarios)
    return (
        f"runs on {there} of {entries} scenarios, so its score cannot be compared with the others; "
        f"on {misfit.scenarios[0]}: {misfit.reason}"
    )


class ExpectedTime:
    """CPU seconds that runs will take: by those that are done, else by what was measured once."""

    def __init__(self, finished: Sequence[Task]) -> None:
        self._here: dict[tuple[Path, str], list[float]] = {}
        self._anywhere: dict[str, list[float]] = {}
        for comparison, run in finished:
            result = json.loads(comparison.path_of(run).read_text(encoding="utf-8"))
            seconds = result["cpu_seconds"]
            self._here.setdefault((comparison.out, run.policy), []).append(seconds)
            self._anywhere.setdefault(run.policy, []).append(seconds)

    def of(self, tasks: Iterable[Task]) -> float:
        """Return the CPU seconds of some runs."""
        return sum(self._seconds(comparison.out, run.policy) for comparison, run in tasks)

    def _seconds(self, scenario: Path, policy: str) -> float:
        if (scenario, policy) in self._here:
            return fmean(self._here[scenario, policy])
        other = SHIPPED_SECONDS if policy in policies.POLICIES else OWN_SECONDS
        # Runs on other scenarios may have been short ones, so they only raise the estimate.
        return max(SECONDS.get(policy, other), fmean(self._anywhere.get(policy, [0.0])))
