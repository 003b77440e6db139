"""`make bench-docker`: what containers cost, against local processes."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.containers.engine import PROVIDER, TESTBED, Engine
from testbed.federated.bringing import bring_up
from testbed.federated.split import CLOCK, Plan
from testbed.scenario import load_scenario
from testbed.world import build_world

SCENARIO = Path("scenarios/tiny.toml")
HORIZON = 20_000.0
ROUNDS = 3
BASE = "python:3.11-slim"
MEGABYTE = 1e6


def measure(plan: Plan, horizon: float) -> tuple[float, float]:
    """Return the seconds to the first decision, and decisions per second from then on."""
    scenario = load_scenario(SCENARIO, {"horizon": horizon})
    with tempfile.TemporaryDirectory(prefix="fogveil-bench-") as place:
        begin = time.perf_counter()
        first: tuple[float, int] | None = None
        last = 0.0, 0
        with bring_up(build_world(scenario), plan, Path(place)) as testbed:
            for name, report in testbed.reports():
                if name == CLOCK and "clock" in report and report["clock"]["decisions"]:
                    last = time.perf_counter(), report["clock"]["decisions"]
                    first = first or last
    assert first is not None
    rate = (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0
    return first[0] - begin, rate


def show_sizes(say: Callable[[str], None]) -> None:
    """Print how large the images are, and how much of that is the public base."""
    engine = Engine()
    try:
        size: dict[str, Any] = {
            image: engine.api.inspect_image(image)["Size"] / MEGABYTE
            for image in (BASE, PROVIDER, TESTBED)
        }
    finally:
        engine.close()
    for image in (PROVIDER, TESTBED):
        say(f"{image}: {size[image]:.0f} MB, {size[image] - size[BASE]:.0f} MB of it on {BASE}")


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(Path("tests/docker").absolute()))
    from docker_engine import engine  # type: ignore[import-not-found]

    with engine() as found:
        os.environ.update(found)
        local = Plan(policies=("jsq",))
        contained = replace(local, contained=True)
        measure(contained, 100.0)  # builds the images
        for _ in range(ROUNDS):
            for words, plan in (("containers", contained), ("processes", local)):
                seconds, rate = measure(plan, HORIZON)
                print(f"{words}: first decision after {seconds:.1f} s, {rate:,.0f} decisions/s")
        show_sizes(print)


if __name__ == "__main__":
    main()
