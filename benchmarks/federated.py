"""What the federated testbed costs beside the least that its transports can cost.

Everything is measured in turns of about a second, testbed and limit, testbed and limit, and given
as the median: so a busy machine slows both, and the ratios hold.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from agent.learning.hyperparameters import Hyperparameters
from agent.trainee import Trainee
from benchmarks.federated_bare import Fanout
from benchmarks.federated_testbed import PLANES, Bed, Stretch
from benchmarks.training import MEAN_EPSILON, at_paper_length, ours
from broker import mosquitto
from fogveil.v1.clock_pb2 import Grant, JoinResponse
from testbed.federated.launch import ENVIRONMENT
from testbed.federated.split import Plan
from testbed.federated.training import Progress, train_federated
from testbed.federated.windows import FLUSH_EVERY, LARGEST_WINDOW
from testbed.scenario import load_scenario
from testbed.world import World, build_world

PAPER = Path(__file__).parent.parent / "scenarios" / "paper.toml"
FOGS = 12
WINDOW = 64
LOCKSTEP, PIPELINED = 0.5, 10.0
"""The targets: of the bare fan-out, and times the lockstep rate."""
GROWTH = (5, 10, 25, 50)
LARGEST_PROVIDER = 80.0
"""MB, the target."""
POPULATION, STEPS = 6_000, 2_000
"""The stretch of a training: random decisions, and gradient steps after them."""


@dataclass(frozen=True)
class Length:
    """How long the parts take."""

    seconds: float = 0.8
    """Of a turn."""
    turns: int = 9
    share: float = 1.0
    """Of a training's stretch."""


def make_world(fogs: int, **overrides: Any) -> World:
    """Build the paper's scenario with another number of Fog nodes and no end."""
    given = {"roles.fog": fogs, "topology.nodes": max(100, 4 * fogs), "horizon": 1e7}
    return build_world(load_scenario(PAPER, given | overrides))


def grant_size() -> int:
    """Return the bytes of a grant in lockstep, which the bare fan-out sends, too."""
    grant = Grant(until=1234.5, observe_at=[1234.5], expect=[100])
    return len(JoinResponse(grant=grant).SerializeToString())


def verdict(*, met: bool) -> str:
    """Say whether a target is met."""
    return "met" if met else "MISSED"


def rates(turns: Sequence[Stretch]) -> float:
    """Return the median rate."""
    return median(turn.rate for turn in turns)


def ratio(turns: Sequence[Stretch], limits: Sequence[float]) -> float:
    """Return the median ratio of turns to those beside them."""
    return median(turn.rate / limit for turn, limit in zip(turns, limits, strict=True))


# --- lockstep ------------------------------------------------------------------------------------


def beside_bare(
    bed: Bed, bare: Fanout, length: Length, turns: int
) -> tuple[list[Stretch], list[float]]:
    """Let a testbed and a bare fan-out take turns; return what each did."""
    seen, limits = [], []
    for _ in range(turns):
        seen.append(bed.stretch(length.seconds))
        limits.append(bare.rate(length.seconds))
    return seen, limits


def lockstep(length: Length) -> dict[str, float] | None:
    """Print the lockstep rates, and what else one testbed shows; return its bytes per decision."""
    world, size = make_world(FOGS), grant_size()
    best = "mosquitto" if mosquitto.find() else "builtin"
    print(f"\nlockstep: jsq at level count, {FOGS} Fog providers; the Cloud, a 13th process, is not")
    print(f"looked at. Beside it the bare fan-out to {FOGS} echo processes, {size} bytes a message")
    with Bed(world, Plan(policies=("jsq",), window=1, broker=best)) as bed:
        started = bed.started
        with Fanout(FOGS, size, secure=True) as bare:
            seen, limits = beside_bare(bed, bare, length, length.turns)
            share = ratio(seen, limits)
            crossed = bed.bytes_per_decision(length.seconds)
            bare.rate(0.1)
            memory = bed.memory()
            cpu = cpu_per_decision(seen)
        mark = verdict(met=share >= LOCKSTEP)
        print(f"  {share:5.2f} of bare: {rates(seen):,.0f} decisions/s, {median(limits):,.0f} rounds/s")
        print(f"        (mutual TLS on both, {best}; target {LOCKSTEP:g}: {mark})")
        if best == "mosquitto":
            bed.let_go()
            with Bed(world, Plan(policies=("jsq",), window=1, broker="builtin")) as other:
                builtin = [
                    (other.stretch(length.seconds), bed.stretch(length.seconds))
                    for _ in range(length.turns)
                ]
                memory["broker (built-in)"] = other.memory()["broker"]
            both = [a.rate / b.rate for a, b in builtin]
            rate = rates([a for a, _ in builtin])
            print(f"  {median(both):5.2f} of mosquitto's rate with the built-in broker: {rate:,.0f}")
    with (
        Bed(world, Plan(policies=("jsq",), window=1, broker=best, secure=False)) as bed,
        Fanout(FOGS, size, secure=False) as bare,
    ):
        seen, limits = beside_bare(bed, bare, length, max(3, length.turns // 2))
    share = ratio(seen, limits)
    print(f"  {share:5.2f} of bare without TLS on either: {rates(seen):,.0f}, {median(limits):,.0f}")

    print(f"\nstart-up, from the call until all {FOGS + 4} participants have joined: {started:.1f} s")
    print(f"{'':18}{'CPU per decision':>18}{'RSS':>9}{'PSS':>9}   (the largest of its kind)")
    for kind, (rss, pss) in memory.items():
        spent = f"{cpu[kind] * 1e6:,.0f} µs" if kind in cpu else ""
        print(f"  {kind:16}{spent:>18}{rss:>6.0f} MB{pss:>6.0f} MB")
    largest = memory["providers"][0]
    print(f"  all together {sum(cpu.values()) * 1e3:.1f} ms of CPU per decision")
    mark = verdict(met=largest < LARGEST_PROVIDER)
    print(f"  a provider has {largest:.0f} MB (target under {LARGEST_PROVIDER:.0f}: {mark})")
    return crossed


def cpu_per_decision(turns: Sequence[Stretch]) -> dict[str, float]:
    """Return CPU seconds per decision by kind of participant."""
    decisions = sum(turn.decisions for turn in turns)
    return {kind: sum(turn.cpu[kind] for turn in turns) / decisions for kind in turns[0].cpu}


# --- pipelined -----------------------------------------------------------------------------------


def pipelined(length: Length, lockstep_bytes: dict[str, float] | None) -> None:
    """Print what windows of many decisions bring, and what crosses each plane."""
    world = make_world(FOGS)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        parl = str(Trainee(world.agent, "parl", Hyperparameters(), Path(folder)).save_light())
        plans = [
            Plan(policies=(parl,), window=WINDOW),
            Plan(policies=(parl,), window=1),
            Plan(policies=("round-robin",), window=WINDOW),
        ]
        beds = [stack.enter_context(Bed(world, plan)) for plan in plans]
        for bed in beds:
            bed.hold()
        turns = [
            [bed.stretch(length.seconds) for bed in beds] for _ in range(max(3, length.turns - 2))
        ]
        many, one, blind = zip(*turns, strict=True)
        times = ratio(many, [turn.rate for turn in one])
        print(f"\npipelined: PARL (untrained) at level total, {WINDOW} decisions per window")
        print(f"  {times:5.1f} times lockstep: {rates(many):,.0f} and {rates(one):,.0f} decisions/s")
        print(f"        (target {PIPELINED:g}: {verdict(met=times >= PIPELINED)})")
        times = ratio(blind, [turn.rate for turn in one])
        print(f"  {times:5.1f} times the same with round-robin, blind: {rates(blind):,.0f} decisions/s")
        crossed = beds[0].bytes_per_decision(length.seconds)
        places = beds[0].nodes()
    windows = [places[at : at + WINDOW] for at in range(0, len(places) - WINDOW, WINDOW)]
    addressed = sum(len(set(window)) for window in windows) / len(windows)

    print("\nmessages and bytes per decision")
    print(f"{'':18}{'jsq, lockstep':>24}{'PARL, windows of 64':>26}")
    messages = lockstep_messages(), pipelined_messages(addressed)
    for plane in PLANES:
        cells = [
            f"{counted[plane]:>12.2f}{told[plane]:>9,.0f} B" if told else f"{counted[plane]:>12.2f}"
            for counted, told in zip(messages, (lockstep_bytes, crossed), strict=True)
        ]
        carrier = "MQTT" if plane == "workload" else "gRPC"
        print(f"  {plane + ' ' + carrier:16}{cells[0]:>24}{cells[1]:>26}")
    print("  messages: from the protocol and the windows; of MQTT those published, each relayed once")
    print("  bytes: of the kernel (`ss -ti`), at the serving ends, in and out, with all framing and TLS")


def per_flush() -> dict[str, float]:
    """Return the messages in which sources publish and providers send results, per decision."""
    sources = 1 / LARGEST_WINDOW
    return {
        "boundary": 0.0,
        "workload": sources + (FOGS + 1) / FLUSH_EVERY,
        "time": 2 * sources + (FOGS + 1) / FLUSH_EVERY,
    }


def lockstep_messages() -> dict[str, float]:
    """Each window: a grant and a count of every Fog provider; the agent's grant, done, placement."""
    seldom = per_flush()
    return {
        "boundary": FOGS,
        "workload": 1 + FOGS / FLUSH_EVERY + seldom["workload"],
        "time": FOGS + 2 + 1 / FLUSH_EVERY + seldom["time"],
    }


def pipelined_messages(addressed: float) -> dict[str, float]:
    """Each window: the same with the Cloud, to which all send aggregates, and several placements."""
    seldom = per_flush()
    return {
        "boundary": (FOGS + 1) / WINDOW,
        "workload": (addressed + FOGS) / WINDOW + seldom["workload"],
        "time": (FOGS + 1 + 2) / WINDOW + seldom["time"],
    }


# --- growth and training -------------------------------------------------------------------------


def growth(length: Length) -> None:
    """Print how the lockstep rate falls with the number of providers, and the limit with it."""
    print("\ngrowth: jsq in lockstep, beside the bare fan-out to as many processes")
    print(f"{'providers':12}{'of bare':>10}{'decisions/s':>14}{'rounds/s':>12}{'start-up':>12}")
    for fogs in GROWTH:
        with (
            Bed(make_world(fogs), Plan(policies=("jsq",), window=1, patience=120)) as bed,
            Fanout(fogs, grant_size(), secure=True) as bare,
        ):
            seen, limits = beside_bare(bed, bare, length, max(3, length.turns // 2))
        share = ratio(seen, limits)
        row = f"{share:>10.2f}{rates(seen):>14,.0f}{median(limits):>12,.0f}{bed.started:>10.1f} s"
        print(f"  {fogs:<10}{row}")


def training(length: Length) -> None:
    """Print how long a training of the paper's length takes on the testbed, and embedded."""
    table = Hyperparameters()
    population, steps = int(POPULATION * length.share), int(STEPS * length.share)
    given = table.model_copy(
        update={
            "buffer_population": population / table.buffer_capacity,
            "training_steps": steps,
            "epsilon_first": MEAN_EPSILON,
            "epsilon_last": MEAN_EPSILON,
        }
    )
    points: dict[str, list[tuple[float, int]]] = {}

    def watch(progress: Progress, _episode: Any) -> None:
        points.setdefault(progress.phase, []).append((time.perf_counter(), progress.decisions))

    scenario = load_scenario(PAPER, {"sources.scale": 100.0})
    with tempfile.TemporaryDirectory() as folder:
        train_federated(scenario, "parl", Path(folder), Plan(), given, watch=watch)
    costs = []
    for phase in ("buffer population", "training"):
        (begin, first), (end, last) = points[phase][0], points[phase][-1]
        costs.append((end - begin) / (last - first))
    hours = (
        costs[0] * table.population_decisions + costs[1] * table.training_decisions
    ) / 3600
    embedded = ours()
    embedded_hours = at_paper_length(embedded) / 3600
    print("\ntraining PARL, windows of 4 decisions (from one gradient step to the next), 10 Fog nodes")
    print(f"{'':14}{'random':>12}{'training':>12}   decisions/s{'paper length':>18}")
    print(f"  {'federated':12}{1 / costs[0]:>12,.0f}{1 / costs[1]:>12,.0f}{hours:>30.1f} h")
    rate = table.train_period / embedded[1]
    print(f"  {'embedded':12}{1 / embedded[0]:>12,.0f}{rate:>12,.0f}{embedded_hours:>30.2f} h")
    length_ = f"{table.population_decisions:,} + {table.training_decisions:,} decisions"
    print(f"  (extrapolated to {length_}; embedded in CPU seconds)")


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.federated", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the lengths")
    quick = parser.parse_args().quick
    length = Length(0.4, 3, 0.2) if quick else Length()
    os.environ.update(ENVIRONMENT)
    torch.set_num_threads(1)
    begin = time.perf_counter()
    load = os.getloadavg()[0]
    print(f"the federated testbed on {os.cpu_count()} cores; load average before: {load:.1f}")
    crossed = lockstep(length)
    pipelined(length, crossed)
    growth(length)
    training(length)
    print(f"\n(took {time.perf_counter() - begin:.0f} s)")


if __name__ == "__main__":
    main()
