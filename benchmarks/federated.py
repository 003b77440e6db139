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
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from agent.learning.hyperparameters import Hyperparameters
from agent.trainee import Trainee
from benchmarks.federated_bare import Fanout
from benchmarks.federated_testbed import PLANES, Bed, Stretch
from benchmarks.training import MEAN_EPSILON, ours
from broker import mosquitto
from fogveil.v1.clock_pb2 import Grant, JoinResponse
from testbed.federated.apart import ENVIRONMENT
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
Turns = tuple[list[Stretch], list[float]]
"""What a testbed did, and the rates of what it took turns with."""
POPULATION, STEPS = 6_000, 2_000
"""The stretch of a training: random decisions, and gradient steps after them."""


@dataclass(frozen=True)
class Length:
    """How long the parts take."""

    seconds: float = 0.7
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


def rate(turns: Sequence[Stretch]) -> float:
    """Return the median rate."""
    return median(turn.rate for turn in turns)


def in_words(turns: Sequence[Stretch], limits: Sequence[float]) -> str:
    """Say how fast testbed and fan-out went."""
    return f"{rate(turns):,.0f} decisions/s to {median(limits):,.0f} rounds/s"


def ratio(turns: Sequence[Stretch], limits: Sequence[float]) -> float:
    """Return the median ratio of turns to those beside them."""
    return median(turn.rate / limit for turn, limit in zip(turns, limits, strict=True))


# --- lockstep ------------------------------------------------------------------------------------


def beside_bare(bed: Bed, bare: Fanout, length: Length, turns: int) -> Turns:
    """Let a testbed and a bare fan-out take turns."""
    seen, limits = [], []
    for _ in range(turns):
        seen.append(bed.stretch(length.seconds))
        limits.append(bare.rate(length.seconds))
    return seen, limits


def lockstep(length: Length) -> dict[str, float] | None:
    """Print the lockstep rates, and what else one testbed shows; return its bytes per decision."""
    world, size = make_world(FOGS), grant_size()
    broker = "mosquitto" if mosquitto.find() else "builtin"
    plan = Plan(policies=("jsq",), window=1, broker=broker)
    print(f"\nlockstep: jsq at level count, {FOGS} Fog providers (the Cloud, not looked at, is one")
    print(
        f"process more), beside the bare fan-out to {FOGS} echo processes, {size} bytes a message"
    )
    with Bed(world, plan) as bed:
        with Fanout(FOGS, size, secure=True) as bare:
            turns = beside_bare(bed, bare, length, length.turns)
            crossed = bed.bytes_per_decision(length.seconds)
        with Fanout(FOGS, size, secure=True, copies=True) as copied:
            beside = beside_bare(bed, copied, length, max(3, length.turns // 2))
        share = ratio(*turns)
        mark = verdict(met=share >= LOCKSTEP)
        print(f"  {share:5.2f} of bare, {in_words(*turns)}; mutual TLS, {broker}")
        print(f"        (target {LOCKSTEP:g}: {mark})")
        rounds = median(beside[1])
        print(f"  {ratio(*beside):5.2f} of bare where the echoes are copies of one process that")
        print(f"        share its memory ({rounds:,.0f} rounds/s), which providers must not")
        memory = bed.memory()
        if broker == "mosquitto":
            bed.let_go()
            with Bed(world, replace(plan, broker="builtin")) as other:
                pairs = [
                    (other.stretch(length.seconds), bed.stretch(length.seconds).rate)
                    for _ in range(length.turns)
                ]
                memory["broker, built-in"] = other.memory()["broker"]
            share = median(turn.rate / beside for turn, beside in pairs)
            print(f"  {share:5.2f} of mosquitto's rate with the built-in broker")
    with (
        Bed(world, replace(plan, secure=False)) as plain,
        Fanout(FOGS, size, secure=False) as bare,
    ):
        unsafe = beside_bare(plain, bare, length, max(3, length.turns // 2))
    print(f"  {ratio(*unsafe):5.2f} of bare without TLS on either side, {in_words(*unsafe)}")

    print(f"\nstart-up, from the call until all have joined: {bed.started:.1f} s")
    print(f"{'lockstep':20}{'CPU per decision':>18}{'RSS':>9}{'PSS':>9}   (of the largest process)")
    cpu = cpu_per_decision(turns[0])
    for kind, (rss, pss) in memory.items():
        spent = f"{cpu[kind] * 1e6:,.0f} µs" if kind in cpu else ""
        print(f"  {kind:18}{spent:>18}{rss:>6.0f} MB{pss:>6.0f} MB")
    print(f"  {'all':18}{sum(cpu.values()) * 1e6:>15,.0f} µs")
    largest = memory["providers"][0]
    mark = verdict(met=largest < LARGEST_PROVIDER)
    print(f"  a provider takes {largest:.0f} MB (target: under {LARGEST_PROVIDER:.0f}: {mark})")
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
        turns = [[bed.stretch(length.seconds) for bed in beds] for _ in range(length.turns)]
        many, one, blind = zip(*turns, strict=True)
        limits = [turn.rate for turn in one]
        times = ratio(many, limits)
        print(f"\npipelined: PARL (untrained) at level total, {WINDOW} decisions per window")
        print(f"  {times:5.1f} times its lockstep rate: {rate(many):,.0f} and {rate(one):,.0f}")
        print(f"        (target {PIPELINED:g}: {verdict(met=times >= PIPELINED)})")
        print(f"  {ratio(blind, limits):5.1f} times that: round-robin, blind, {rate(blind):,.0f}")
        crossed = beds[0].bytes_per_decision(length.seconds)
        places = beds[0].nodes()
    windows = [places[at : at + WINDOW] for at in range(0, len(places) - WINDOW, WINDOW)]
    addressed = sum(len(set(window)) for window in windows) / len(windows)

    print("\nmessages and bytes per decision")
    print(f"{'':18}{'jsq, lockstep':>24}{'PARL, windows of 64':>26}")
    messages = lockstep_messages(), pipelined_messages(addressed)
    for plane in PLANES:
        cells = [
            f"{counted[plane]:>12.2f}" + (f"{told[plane]:>9,.0f} B" if told else "")
            for counted, told in zip(messages, (lockstep_bytes, crossed), strict=True)
        ]
        carrier = "MQTT" if plane == "workload" else "gRPC"
        print(f"  {plane + ' ' + carrier:16}{cells[0]:>24}{cells[1]:>26}")
    print("  messages: as the protocol has it, of MQTT those published (each is relayed once)")
    print("  bytes: the kernel's (`ss -ti`) at the serving ends, in and out, all framing included")


def seldom_messages() -> dict[str, float]:
    """Return those of sources, and of flushes, in which providers send results and are done."""
    sources, flushes = 1 / LARGEST_WINDOW, 1 / FLUSH_EVERY
    done = (FOGS + 1) * flushes
    return {"boundary": 0.0, "workload": sources + done, "time": 2 * sources + done}


def lockstep_messages() -> dict[str, float]:
    """A window is a grant and a count of each provider, the agent's grant, done and placement."""
    messages = seldom_messages()
    messages["boundary"] += FOGS
    messages["workload"] += 1 + FOGS / FLUSH_EVERY
    messages["time"] += FOGS + 2 + 1 / FLUSH_EVERY
    return messages


def pipelined_messages(addressed: float) -> dict[str, float]:
    """A window has the Cloud as well, to which all send aggregates, and placements to several."""
    messages = seldom_messages()
    messages["boundary"] += (FOGS + 1) / WINDOW
    messages["workload"] += (addressed + FOGS) / WINDOW
    messages["time"] += (FOGS + 1 + 2) / WINDOW
    return messages


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
        row = f"{ratio(seen, limits):>10.2f}{rate(seen):>14,.0f}{median(limits):>12,.0f}"
        print(f"  {fogs:<10}{row}{bed.started:>10.1f} s")


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
    random, step = ours()
    rows = {"federated": costs, "embedded": [random, step / table.train_period]}
    lengths = table.population_decisions, table.training_decisions
    print(
        "\ntraining PARL, 10 Fog nodes, federated with windows of 4: from one gradient step to the"
    )
    print("next. Decisions/s while the buffer is filled and in training, and at the paper's length")
    for mode, (filling, training_) in rows.items():
        hours = (filling * lengths[0] + training_ * lengths[1]) / 3600
        print(f"  {mode:12}{1 / filling:>10,.0f}{1 / training_:>10,.0f}{hours:>10.2f} h")
    print(f"  ({lengths[0]:,} and {lengths[1]:,} decisions, extrapolated; embedded in CPU time)")


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
