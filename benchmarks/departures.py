"""What totals give away of a provider that departs: its count, by the difference of two sums.

The observer has what the agent has at level `total`: the sum at each decision. It takes the last
one before the instant at which the provider tells its count no more, and the first one from then
on. Their difference, or 0 if it is negative, estimates the provider's count: it is wrong by what
the others' counts changed meanwhile. In each run, a seed of its own, one node departs, in turn.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import atanh, sqrt, tanh
from statistics import correlation, fmean
from typing import Any

import fogveil.agent.policies as policies
from fogveil.agent.policy import AgentView, Level, Observation, Policy
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.report.statistics import estimate
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

AT = 1500.0
"""When a node crashes or stops taking jobs: queues have filled by then."""
LATER = 1000.0
"""Time units after which a leaver that drains tells its count no more."""
AFTER = 200.0
"""Time units that are watched after that."""
SILENT = -1
NORMAL = 1.96
"""Standard deviations of an interval of 95 %."""

Rows = list[tuple[float, tuple[int, ...]]]
"""The time of each decision and all counts at it, the Cloud's last."""


class Witness(Policy):
    """Places as another policy does, and writes all counts down."""

    needs = Level.COUNT
    watches_cloud = True

    def __init__(self, view: AgentView, policy: str) -> None:
        self._policy = policies.load(policy, view)
        super().__init__(view)

    def reset(self) -> None:
        """Begin anew."""
        self._policy.reset()
        self.rows: Rows = []

    def place(self, observation: Observation) -> int:
        """Return the other policy's choice."""
        counts = observation.counts or ()
        self.rows.append((observation.time, (*counts, observation.cloud_count or 0)))
        return self._policy.place(observation)


@dataclass(frozen=True)
class Departure:
    """How a node departs."""

    name: str
    tells_until: float
    """The instant around which sums are compared."""
    event: dict[str, Any]


DEPARTURES = (
    Departure("crashes", AT, {"kind": "crash", "back": AT + LATER + 2 * AFTER}),
    Departure("gone at once", AT, {"kind": "leave", "gone": AT}),
    Departure("drains, gone later", AT + LATER, {"kind": "leave", "gone": AT + LATER}),
    Departure("drains, stays a member", AT, {"kind": "leave"}),
)


@dataclass
class Outcomes:
    """Of each run, what was hidden and what the sums say."""

    counts: list[int] = field(default_factory=list)
    """Of the one that departs, when it last took jobs."""
    estimates: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    """What the one that departs still had when it last told its count."""

    def add(self, rows: Rows, node: int, tells_until: float) -> None:
        """Add one run."""
        before = _last_before(tells_until, rows)
        after = next(row for time, row in rows if time >= tells_until)
        self.counts.append(_last_before(AT, rows)[node])
        self.estimates.append(max(0, _total(before) - _total(after)))
        self.left.append(before[node])

    @property
    def drained(self) -> Outcomes:
        """The runs in which nothing was left."""
        empty = [place for place, left in enumerate(self.left) if not left]
        counts, estimates = (
            [each[place] for place in empty] for each in (self.counts, self.estimates)
        )
        return Outcomes(counts, estimates, [0] * len(empty))

    def figures(self) -> tuple[str, ...]:
        """Return the cells of a row."""
        pairs = list(zip(self.counts, self.estimates, strict=True))
        mean, (commonest, _) = fmean(self.counts), Counter(self.counts).most_common(1)[0]
        return (
            f"{mean:.2f}",
            _share([not left for left in self.left]),
            _share([count == told for count, told in pairs]),
            _share([count == commonest for count in self.counts]),
            estimate([float(abs(count - told)) for count, told in pairs]).compact(),
            estimate([abs(count - mean) for count in self.counts]).compact(),
            _correlation(self.counts, self.estimates),
        )


HEADINGS = "mean count", "drained", "exact", "guess exact", "error", "guess's error"


def _last_before(instant: float, rows: Rows) -> tuple[int, ...]:
    return next(row for time, row in reversed(rows) if time < instant)


def _total(counts: Sequence[int]) -> int:
    return sum(count for count in counts if count != SILENT)


def _share(hits: Sequence[bool]) -> str:
    share = fmean(hits)
    return f"{share:.0%} ±{NORMAL * sqrt(share * (1 - share) / len(hits)):.0%}"


def _correlation(one: Sequence[int], other: Sequence[int]) -> str:
    """Return a correlation with the ends of its interval, by Fisher's transformation."""
    value = correlation(one, other)
    middle, width = atanh(value), NORMAL / sqrt(len(one) - 3)
    return f"{value:.2f} ({tanh(middle - width):.2f} to {tanh(middle + width):.2f})"


def outcomes(scenario: str, rate: float, policy: str, departure: Departure, runs: int) -> Outcomes:
    """Return what the sums say about departures of a kind, with seeds from 1 on."""
    found = Outcomes()
    quiet = {
        "disclosure": "count",
        "sources.scale": rate,
        "horizon": departure.tells_until + AFTER,
    }
    nodes = build_world(load_scenario(scenario, quiet)).nodes
    for seed in range(1, runs + 1):
        node = seed % len(nodes)
        event = {"at": AT, "node": nodes[node], **departure.event}
        chosen = load_scenario(scenario, {**quiet, "seed": seed, "events": [event]})
        watching = Witness(build_world(chosen).agent, policy)
        run_embedded(chosen, watching)
        found.add(watching.rows, node, departure.tells_until)
    return found


def print_row(name: str, found: Outcomes) -> None:
    """Print the figures of some departures."""
    *figures, last = found.figures()
    print(f"{name:22}", *(f"{figure:>13}" for figure in figures), f"  {last}", flush=True)


def main() -> None:
    """Print how much the sums say about departures of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="per kind; seeds count from 1")
    parser.add_argument("--scenario", default="stress")
    runs, scenario = (given := parser.parse_args()).runs, given.scenario
    print(f"{scenario}: the difference of two totals as an estimate of the departing node's count")
    print(f"{runs} runs per row, seeds 1 to {runs}; ± and (…) are 95 %")
    for rate, policy in ((200.0, "random"), (100.0, "jsq")):
        print(f"\nβ = {rate:g}, jobs placed by {policy}")
        print(f"{'':22}", *(f"{heading:>13}" for heading in HEADINGS), "  correlation")
        for departure in DEPARTURES:
            found = outcomes(scenario, rate, policy, departure, runs)
            print_row(departure.name, found)
            if departure.tells_until > AT and len(found.drained.counts) < runs:
                print_row("  where it had drained", found.drained)


if __name__ == "__main__":
    main()
