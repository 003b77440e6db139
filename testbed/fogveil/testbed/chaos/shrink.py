"""The smallest part of a plan that still fails: what is left after leaving out all that may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fogveil.testbed.chaos.faults import Fault, FaultPlan

MOST_TRIES = 24


def shrink(
    plan: FaultPlan, fails: Callable[[FaultPlan], bool], tries: int = MOST_TRIES
) -> FaultPlan:
    """Return a part of a plan that fails, from which no fault can be left out.

    Single faults are tried first: mostly one is guilty. After so many tries the smallest part that
    is known to fail is returned.

    >>> faults = tuple(Fault(0.1 * n, "kill", who) for n, who in enumerate("abcd"))
    >>> plan = FaultPlan(1, faults)
    >>> smallest = shrink(plan, lambda part: {"b", "d"} <= {fault.who for fault in part.faults})
    >>> [fault.who for fault in smallest.faults]
    ['b', 'd']
    """
    left = tries

    def still_fails(faults: Sequence[Fault]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(FaultPlan(plan.seed, tuple(faults)))

    smallest = list(plan.faults)
    if len(smallest) > 1:
        for fault in smallest:
            if still_fails([fault]):
                return FaultPlan(plan.seed, (fault,))
    place = 0
    while len(smallest) > 1 and place < len(smallest) and left > 0:
        without = smallest[:place] + smallest[place + 1 :]
        if still_fails(without):
            smallest = without
        else:
            place += 1
    return FaultPlan(plan.seed, tuple(smallest))
