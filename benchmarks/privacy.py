"""What privacy costs in speed: mutual TLS and recording, against the plain-text testbed.

Three testbeds of the paper's scenario stand side by side and take turns, so that whatever else the
machine does it does to all of them.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from statistics import median

from benchmarks.federated import make_world
from benchmarks.federated_testbed import Bed
from testbed.federated.split import Plan

FOGS = 10
TARGET = 0.8
"""Of the plain-text rate."""
KINDS = {
    "plain text": {"secure": False},
    "mutual TLS": {"secure": True},
    "mutual TLS and recording": {"secure": True, "record": True},
}


def compare(title: str, policy: str, window: int, seconds: float, turns: int) -> None:
    """Print the rates of the three testbeds in turns."""
    world = make_world(FOGS)
    with ExitStack() as stack:
        beds = {}
        for name, more in KINDS.items():
            plan = Plan(policies=(policy,), window=window, broker="builtin", **more)  # type: ignore[arg-type]
            # Who is held too long is taken for lost: until all are there, each runs.
            beds[name] = stack.enter_context(Bed(world, plan))
        for bed in beds.values():
            bed.hold()
        rates: dict[str, list[float]] = {name: [] for name in beds}
        for _ in range(turns):
            for name, bed in beds.items():
                rates[name].append(bed.stretch(seconds).rate)
    plain = rates["plain text"]
    print(f"\n{title}")
    for name, seen in rates.items():
        share = median(a / b for a, b in zip(seen, plain, strict=True))
        mark = "" if seen is plain else (" met" if share >= TARGET else " MISSED")
        print(f"  {share:5.2f}  {name}: {median(seen):,.0f} decisions/s{mark}")


def main() -> None:
    """Measure lockstep and pipelined."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the turns")
    turns = 3 if parser.parse_args().quick else 9
    print(
        f"what identities and recordings cost, {FOGS} Fog providers (target: {TARGET:g} of plain)"
    )
    compare("lockstep, jsq at level count", "jsq", 1, 0.6, turns)
    compare("pipelined, round robin, 64 decisions per window", "round-robin", 64, 0.6, turns)


if __name__ == "__main__":
    main()
