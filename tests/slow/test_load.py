"""A testbed under load: many providers at once, and many episodes one after the other."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict

import pytest
from load_support import MIB, Held, descendants, held_by, shared_out, slope
from support import SCENARIOS

from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.join_records import remove_records
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.world import build_world

pytestmark = pytest.mark.slow

PROVIDERS = 200
START_WITHIN = 900.0
"""Seconds, on a machine of two cores that has much else to do."""
SOAK = float(os.environ.get("FOGVEIL_SOAK_SECONDS", "240"))
"""Seconds of the soak; 3600 for an hour."""
WARM_UP = 0.25
"""Share of the soak after which nothing may grow any more."""
MOST_EPISODES = 50_000
GROWTH = 0.1
"""Share of a process's memory by which it may be larger at the end than after the warm-up."""


def star(providers: int, horizon: float) -> Scenario:
    """Return tiny with many more Fog nodes, all of them beside the Cloud."""
    fogs = [f"fog-{number + 1}" for number in range(providers)]
    names = ["cloud", *fogs, "cluster-1", "cluster-2"]
    links = [{"between": ["cloud", fog], "bandwidth": 400, "propagation": 8} for fog in fogs]
    links += [
        {"between": [f"cluster-{number}", f"fog-{number}"], "bandwidth": 300, "propagation": 2}
        for number in (1, 2)
    ]
    tiny = load_scenario(SCENARIOS / "tiny.toml").model_dump()
    tiny["topology"] |= {
        "nodes": [{"name": name, "role": name.partition("-")[0]} for name in names],
        "links": links,
    }
    tiny["fog"] |= {"ipt": [200 + 5 * n for n in range(providers)], "ram": [16] * providers}
    return Scenario.model_validate({**tiny, "horizon": horizon, "disclosure": "count"})


def test_two_hundred_providers(tmp_path, capsys):
    scenario = star(PROVIDERS, horizon=2000)
    begin, joined, peak = time.monotonic(), [], [0, 0]
    over = threading.Event()

    def measure():
        while not over.wait(5.0):
            pids = list(descendants(os.getpid()))
            peak[:] = max(peak, [shared_out(pids), len(pids)])

    measuring = threading.Thread(target=measure)
    measuring.start()
    try:
        plan = Plan(("jsq",), recovers=True, patience=START_WITHIN)
        (result,) = run_federated(
            scenario, plan, tmp_path, started=lambda _: joined.append(time.monotonic())
        )
    finally:
        over.set()
        measuring.join()
    with capsys.disabled():
        print(  # noqa: T201 (what was measured)
            f"\n{PROVIDERS} providers: {joined[0] - begin:.0f} s until all had joined, "
            f"{time.monotonic() - joined[0]:.0f} s for {result['summary']['workloads']} decisions; "
            f"{peak[1]} processes, {peak[0] / MIB:,.0f} MiB"
        )
    assert result["run_hash"] == run_embedded(scenario, "jsq")["run_hash"]
    assert result["marked"] == []


def test_soak(tmp_path, capsys):
    scenario = load_scenario(SCENARIOS / "tiny.toml", {"horizon": 1000, "disclosure": "count"})
    draws = tuple(range(MOST_EPISODES))
    plan = Plan(("jsq",), draws=draws, recovers=True, separate_users=False)
    samples: defaultdict[str, list[tuple[float, Held]]] = defaultdict(list)
    episodes = 0
    with create_testbed(build_world(scenario), plan, tmp_path) as testbed:
        pids = {name: each.process.pid for name, each in testbed.participants.items()}
        pids |= {"broker": testbed.broker.pid, "launcher": os.getpid()}
        begin = sampled = time.monotonic()
        for _, report in testbed.reports():
            if "over" in report:
                remove_records(testbed.split, report["over"])
                episodes += 1
            now = time.monotonic()
            if now > begin + SOAK:
                break
            if now > sampled + SOAK / 1000:
                sampled = now
                for name, pid in pids.items():
                    if held := held_by(pid):
                        samples[name].append((now - begin, held))
        assert testbed.recovery.losses == []
    lines = [f"{episodes} episodes in {SOAK:g} s; per hour:"]
    faults = []
    for name, taken in samples.items():
        warm = [(when, held) for when, held in taken if when > WARM_UP * SOAK]
        seconds = [when for when, _ in warm]
        line = f"{name:>10}"
        for what in Held._fields:
            values = [float(getattr(held, what)) for _, held in warm]
            unit = MIB if what == "memory" else 1
            rise, wide = slope(seconds, values)
            line += f"  {what} {values[-1] / unit:,.1f}, {rise / unit:+,.2f} ± {wide / unit:,.2f}"
            allowed = GROWTH * values[0] if what == "memory" else 2
            if values[-1] > values[0] + allowed:
                faults.append(f"{name}: {what} grew from {values[0]:g} to {values[-1]:g}")
        lines.append(line)
    with capsys.disabled():
        print("\n" + "\n".join(lines))  # noqa: T201 (what was measured)
    assert not faults
    assert episodes > 3
