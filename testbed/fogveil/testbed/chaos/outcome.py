"""What came of runs under chaos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from fogveil.protocol.roster import Roster
from fogveil.testbed.chaos.faults import FaultPlan
from fogveil.testbed.chaos.shrink import shrink


@dataclass
class Outcome:
    """What came of one run."""

    faults: list[str] = field(default_factory=list)
    """What is wrong with it; nothing where it went as if undisturbed."""
    losses: int = 0
    """How often somebody was lost and started again."""
    steps: int = 0
    """Messages that arrived, in a simulated run."""
    seconds: float = 0.0
    """Virtual ones, or those of the wall clock of a real run."""

    @property
    def passed(self) -> bool:
        """Whether it went as if undisturbed."""
        return not self.faults


class Runner(Protocol):
    """Runs one scenario, again and again."""

    roster: Roster

    def run(self, faults: FaultPlan) -> Outcome:
        """Run once, with these faults."""


@dataclass(frozen=True)
class Failure:
    """A run that did not go as if undisturbed, and the smallest part of its plan that does not."""

    plan: FaultPlan
    faults: list[str]
    smallest: FaultPlan

    def describe(self) -> dict[str, Any]:
        """Return it as --json prints it."""
        return {
            "seed": self.plan.seed,
            "faults": self.faults,
            "plan": self.plan.text(),
            "smallest": self.smallest.text(),
            "smallest_faults": [fault.describe() for fault in self.smallest.faults],
        }


@dataclass
class Tally:
    """The runs until now."""

    runs: int = 0
    carried_out: int = 0
    """Faults of their plans."""
    losses: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def run_plans(
    runner: Runner, plans: Iterable[FaultPlan], shrinking: Callable[[FaultPlan], None] | None
) -> Iterator[Tally]:
    """Run plan after plan; yield the tally after each.

    `shrinking` is told of each plan that fails, before its smallest part is searched for; with None
    it is not.
    """
    tally = Tally()
    for plan in plans:
        outcome = runner.run(plan)
        tally.runs += 1
        tally.carried_out += len(plan.faults)
        tally.losses += outcome.losses
        tally.seconds += outcome.seconds
        if not outcome.passed:
            smallest = plan
            if shrinking and plan.faults:
                shrinking(plan)
                smallest = shrink(plan, lambda part: not runner.run(part).passed)
            tally.failures.append(Failure(plan, outcome.faults, smallest))
        yield tally
