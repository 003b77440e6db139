"""Twin testbeds whose providers differ in nothing but their secrets.

Jobs come in bursts. Within a burst no job finishes, whatever a provider's speed; before the next
one all have. So the counts at the decision instants rise and fall alike in both twins, although
speeds differ by a factor of two and more, and whatever the agent sees must be the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, variance
from typing import Any

from fogveil.identity import AGENT
from fogveil.recording import RESPONSE, STATUS, TRAFFIC, TRAILING
from testbed.audit.findings import Finding, Verdict, judge
from testbed.federated.bringing import bring_up
from testbed.federated.split import Plan
from testbed.scenario import Scenario
from testbed.traffic import read_traffic
from testbed.world import build_world

NODES = 3
BURSTS, PER_BURST, GAP, APART = 8, 8, 10.0, 1000.0
INSTRUCTIONS = 10**6
SLOWEST, FASTEST = 300.0, 120.0
"""Service times: longer than a burst lasts, and short enough that all is done before the next."""
LEAST_FACTOR = 2.0


def twin_speeds(seed: int) -> tuple[list[float], list[float]]:
    """Return two lists of speeds, each node's different by a factor of at least two."""
    random = Random(seed)  # noqa: S311 (no key)
    slow = [random.uniform(SLOWEST * 0.9, SLOWEST) for _ in range(NODES)]
    fast = [random.uniform(FASTEST, time / LEAST_FACTOR) for time in slow]
    pairs = [(a, b) if random.random() < 1 / 2 else (b, a) for a, b in zip(slow, fast, strict=True)]
    one, other = ([INSTRUCTIONS / time for time in times] for times in zip(*pairs, strict=True))
    return one, other


def twin(folder: Path, speeds: Sequence[float], ram: Sequence[float], count: str) -> Scenario:
    """Return the scenario of one twin."""
    trace = folder / "bursts.csv"
    times = [
        APART * (burst + 1) + GAP * number for burst in range(BURSTS) for number in range(PER_BURST)
    ]
    trace.write_text("time\n" + "".join(f"{time}\n" for time in times), encoding="utf-8")
    fogs = [f"fog-{number}" for number in range(1, NODES + 1)]
    roles = {"cloud": "cloud", "cluster-1": "cluster"} | dict.fromkeys(fogs, "fog")
    return Scenario.model_validate(
        {
            "name": "twin",
            "seed": 1,
            "horizon": APART * (BURSTS + 1),
            "count": count,
            "topology": {
                "kind": "explicit",
                "nodes": [{"name": name, "role": role} for name, role in roles.items()],
                "links": [
                    {"between": [name, fogs[0]], "bandwidth": 1000.0, "propagation": 0.5}
                    for name in ("cloud", "cluster-1", *fogs[1:])
                ],
            },
            "fog": {"ipt": list(speeds), "ram": list(ram)},
            "cloud": {"ipt": 100.0 * INSTRUCTIONS},
            "applications": [
                {"name": "job", "instructions": INSTRUCTIONS, "bytes_up": 100, "bytes_down": 100}
            ],
            "sources": {"kind": "trace", "file": str(trace), "columns": {"time": "time"}},
        }
    )


def agent_view(folder: Path, run: str) -> dict[str, list[str]]:
    """Return all that an agent saw and decided, by where it came from, without the run's name."""
    own = folder / "participants" / AGENT
    seen: dict[str, list[str]] = {}
    for crossing in read_traffic(own / TRAFFIC):
        # How a stream ends depends on who leaves first, which is nobody's secret.
        if crossing.receiver != AGENT or crossing.kind in (STATUS, TRAILING):
            continue
        where = f"{crossing.sender} {crossing.method.replace(run, 'RUN')}"
        text = json.dumps([crossing.kind, crossing.text])
        seen.setdefault(where, []).append(f"{text} {crossing.payload.hex()}".replace(run, "RUN"))
    decisions = (own / "decisions-0000.csv").read_text(encoding="utf-8").splitlines()
    return {**seen, "decisions": decisions}


def run_twin(scenario: Scenario, folder: Path, audited: Plan) -> tuple[dict[str, list[str]], Path]:
    """Run one twin and return what its agent saw."""
    plan = Plan(policies=("jsq",), broker=audited.broker, record=True, contained=audited.contained)
    with bring_up(build_world(scenario), plan, folder) as testbed:
        testbed.wait()
    return agent_view(folder, testbed.run), folder


def check_twins(folder: Path, audited: Plan, count: str, seed: int) -> list[Finding]:
    """Run twins twice, alternating, and compare what their agents saw, and when."""
    speeds = twin_speeds(seed)
    random = Random(seed + 1)  # noqa: S311 (no key)
    views: list[list[dict[str, list[str]]]] = [[], []]
    delays: list[list[float]] = [[], []]
    for round_ in range(2):
        for which in (0, 1):
            ram = [float(random.randrange(10**9)) + 1 for _ in range(NODES)]
            place = folder / f"twin-{round_}-{which}"
            place.mkdir(parents=True, mode=0o700)
            view, made = run_twin(twin(place, speeds[which], ram, count), place, audited)
            views[which].append(view)
            delays[which] += answer_delays(made)
    factors = [max(a / b, b / a) for a, b in zip(*speeds, strict=True)]
    return [_compare(views, factors), timing(*delays)]


def _compare(views: list[list[dict[str, list[str]]]], factors: list[float]) -> Finding:
    first = views[0][0]
    faults = []
    for which, view in ((0, views[0][1]), (1, views[1][0]), (1, views[1][1])):
        faults += [
            f"what came from {where} differs in twin {which + 1}"
            for where in sorted({*first, *view})
            if first.get(where) != view.get(where)
        ]
    counts = {line.rpartition(",")[2] for line in first["decisions"][1:]}
    if len(counts) < PER_BURST // 2:
        faults.append("the counts hardly change: nothing would show")
    number = sum(len(lines) for lines in first.values())
    evidence = (
        f"providers differ in memory and in speed by {min(factors):.1f} to {max(factors):.1f} "
        f"times; the agent's {number:,} messages and decisions are the same byte for byte, "
        f"with {len(counts)} different sets of counts"
    )
    promise = "non-interference: secrets change nothing that counts do not"
    return judge(promise, evidence, faults, number)


def answer_delays(folder: Path) -> list[float]:
    """Return when the first provider told its counts, against the mean of all, window by window.

    So what slows everybody down alike, as a busy machine does, does not matter.
    """
    told: dict[str, list[float]] = {}
    for crossing in read_traffic(folder / "participants" / AGENT / TRAFFIC):
        if crossing.kind == RESPONSE and crossing.method.endswith("/Watch"):
            told.setdefault(crossing.sender, []).append(crossing.at)
    windows = zip(*(told[name] for name in sorted(told)), strict=True)
    return [times[0] - fmean(times) for times in windows]


def timing(one: list[float], other: list[float]) -> Finding:
    """Compare the answer times of both twins by Welch's t."""
    t = _welch(one, other)
    evidence = (
        f"Welch's t = {t:+.2f} between {len(one):,} and {len(other):,} answer times of twins "
        f"(means {fmean(one) * 1e3:+.2f} and {fmean(other) * 1e3:+.2f} ms against the other "
        "providers'); beyond ±4.5 is taken for more than chance. Not promised."
    )
    return Finding("timing: does an answer take longer for a secret?", Verdict.MEASURED, evidence)


def _welch(one: list[float], other: list[float]) -> float:
    spread: Any = variance(one) / len(one) + variance(other) / len(other)
    return (fmean(one) - fmean(other)) / sqrt(spread) if spread else 0.0
