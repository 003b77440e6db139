"""What mutual TLS and recording cost in speed, compared with a plain-text testbed.

Three testbeds of the paper's scenario take turns on one machine: other load slows all alike.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from statistics import median

from benchmarks.federated import make_world
from benchmarks.federated_testbed import PausableTestbed
from fogveil.testbed.launch.participant_config import Plan

FOGS = 10
TARGET = 0.8
"""Share of the plain-text rate."""
KINDS = {
    "plain text": {"secure": False},
    "mutual TLS": {"secure": True},
    "mutual TLS and recording": {"secure": True, "record": True},
}


def compare(title: str, policy: str, window: int, seconds: float, turns: int) -> None:
    """Print the rates of the three testbeds."""
    world = make_world(FOGS)
    with ExitStack() as stack:
        testbeds = {}
        for name, options in KINDS.items():
            plan = Plan(policies=(policy,), window=window, broker="builtin", **options)  # type: ignore[arg-type]
            # A testbed that is paused for too long ends: so each runs until all have started.
            testbeds[name] = stack.enter_context(PausableTestbed(world, plan))
        for testbed in testbeds.values():
            testbed.pause()
        rates: dict[str, list[float]] = {name: [] for name in testbeds}
        for _ in range(turns):
            for name, testbed in testbeds.items():
                rates[name].append(testbed.measure(seconds).rate)
    plain = rates["plain text"]
    print(f"\n{title}")
    for name, measured in rates.items():
        share = median(a / b for a, b in zip(measured, plain, strict=True))
        mark = "" if measured is plain else (" met" if share >= TARGET else " MISSED")
        print(f"  {share:5.2f}  {name}: {median(measured):,.0f} decisions/s{mark}")


def main() -> None:
    """Measure lockstep and pipelined."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the turns")
    turns = 3 if parser.parse_args().quick else 9
    print(f"what mutual TLS and recording cost, {FOGS} Fog providers (target: {TARGET:g} of plain)")
    print("a share is the median of the turns' ratios, not the ratio of the median rates beside it")
    compare("lockstep, jsq at level count", "jsq", 1, 0.6, turns)
    compare("pipelined, round robin, 64 decisions per window", "round-robin", 64, 0.6, turns)


if __name__ == "__main__":
    main()
