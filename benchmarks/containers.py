"""`make bench-docker`: what containers cost, compared with local processes."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from fogveil.protocol.identity import BROKER, CLOCK
from fogveil.testbed.launch.docker.engine_client import EngineClient
from fogveil.testbed.launch.docker.image_build import (
    EXPERIMENTER,
    PARTICIPANT_ROLES,
    build_images,
    image_of,
)
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

SCENARIO = Path("scenarios/tiny.toml")
HORIZON = 20_000.0
ROUNDS = 3
BASE = "python:3.11-slim"
MEGABYTE = 1e6


def measure(plan: Plan, horizon: float) -> tuple[float, float]:
    """Return the seconds to the first decision, and decisions per second from then on."""
    scenario = load_scenario(SCENARIO, {"horizon": horizon})
    with tempfile.TemporaryDirectory(prefix="fogveil-bench-") as folder:
        begin = time.perf_counter()
        first: tuple[float, int] | None = None
        last = 0.0, 0
        with create_testbed(build_world(scenario), plan, Path(folder)) as testbed:
            for name, report in testbed.reports():
                if name == CLOCK and "clock" in report and report["clock"]["decisions"]:
                    last = time.perf_counter(), report["clock"]["decisions"]
                    first = first or last
    assert first is not None
    rate = (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0
    return first[0] - begin, rate


def print_sizes() -> None:
    """Print how large each image is, and how much of it is not the public base."""
    roles = (*PARTICIPANT_ROLES, BROKER, EXPERIMENTER)
    engine = EngineClient()
    try:
        build_images(engine.api, roles, lambda _line: None)
        base = engine.api.inspect_image(BASE)["Size"] / MEGABYTE
        for role in roles:
            size = engine.api.inspect_image(image_of(role))["Size"] / MEGABYTE
            print(f"{image_of(role)}: {size:.0f} MB, {size - base:.0f} MB of it on {BASE}")
    finally:
        engine.close()


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(Path("tests/docker").absolute()))
    from docker_engine import engine  # type: ignore[import-not-found]

    with engine() as environment:
        os.environ.update(environment)
        processes = Plan(policies=("jsq",))
        containers = replace(processes, contained=True)
        measure(containers, 100.0)  # builds the images
        for _ in range(ROUNDS):
            for label, plan in (("containers", containers), ("processes", processes)):
                seconds, rate = measure(plan, HORIZON)
                print(f"{label}: first decision after {seconds:.1f} s, {rate:,.0f} decisions/s")
        print_sizes()


if __name__ == "__main__":
    main()
