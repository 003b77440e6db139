"""What the federated testbed costs, compared with the least that its transports can cost.

Testbed and limit are measured in alternating turns of about a second, and medians are printed: so a
busy machine slows both, and the ratios hold.
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

from benchmarks.federated_bare import Fanout
from benchmarks.federated_testbed import PLANES, Interval, PausableTestbed
from benchmarks.training import MEAN_EPSILON, cost_of_fogveil
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.training_state import TrainingState
from fogveil.broker import mosquitto
from fogveil.clock.core import FLUSH_EVERY
from fogveil.protocol.limits import LARGEST_WINDOW
from fogveil.testbed.experiments.federated_training import TrainingProgress, train_federated
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.process_environment import ENVIRONMENT
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import World, build_world
from fogveil.v1.clock_pb2 import Grant, JoinResponse

STRESS = Path(__file__).parent.parent / "scenarios" / "stress.toml"
FOGS = 12
WINDOW = 64
LOCKSTEP, PIPELINED = 0.5, 10.0
"""Targets: share of the bare fan-out's rate, and multiple of the lockstep rate."""
PROTECTED = 0.9
"""Target: share of the rate without namespaces and padding."""
GROWTH = (5, 10, 25, 50)
LARGEST_PROVIDER = 80.0
"""MB, the target."""
Turns = tuple[list[Interval], list[float]]
"""A testbed's intervals, and the rates of what it took turns with."""
POPULATION, STEPS = 6_000, 2_000
"""The measured part of a training: random decisions, then gradient steps."""


@dataclass(frozen=True)
class Length:
    """How long the measurements take."""

    seconds: float = 0.7
    """Of one turn."""
    turns: int = 9
    share: float = 1.0
    """Of the measured part of a training."""


def make_world(fogs: int, **overrides: Any) -> World:
    """Build the paper's scenario with another number of Fog nodes and no end."""
    sizes = {"roles.fog": fogs, "topology.nodes": max(100, 4 * fogs), "horizon": 1e7}
    return build_world(load_scenario(STRESS, sizes | overrides))


def grant_size() -> int:
    """Return the size of a grant in lockstep; the bare fan-out sends as many bytes."""
    grant = Grant(until=1234.5, observe_at=[1234.5], expect=[100])
    return len(JoinResponse(grant=grant).SerializeToString())


def verdict(*, met: bool) -> str:
    """Return whether a target is met, as it is printed."""
    return "met" if met else "MISSED"


def rate(turns: Sequence[Interval]) -> float:
    """Return the median rate."""
    return median(turn.rate for turn in turns)


def describe(turns: Sequence[Interval], limits: Sequence[float]) -> str:
    """Return the rates of testbed and fan-out, as they are printed."""
    return f"{rate(turns):,.0f} decisions/s to {median(limits):,.0f} rounds/s"


def ratio(turns: Sequence[Interval], limits: Sequence[float]) -> float:
    """Return the median ratio of turns to the turns next to them."""
    return median(turn.rate / limit for turn, limit in zip(turns, limits, strict=True))


# --- lockstep ------------------------------------------------------------------------------------


def take_turns(testbed: PausableTestbed, bare: Fanout, length: Length, turns: int) -> Turns:
    """Measure a testbed and a bare fan-out alternately."""
    intervals, limits = [], []
    for _ in range(turns):
        intervals.append(testbed.measure(length.seconds))
        limits.append(bare.rate(length.seconds))
    return intervals, limits


def lockstep(length: Length) -> dict[str, float] | None:
    """Print rates, CPU time and memory in lockstep; return the bytes per decision by plane."""
    world, size = make_world(FOGS), grant_size()
    broker = "mosquitto" if mosquitto.find() else "builtin"
    plan = Plan(policies=("jsq",), window=1, broker=broker)
    print(
        f"\nlockstep: jsq at level count, {FOGS} Fog providers (and the Cloud, whose count is not"
    )
    print(f"read), compared with a bare fan-out to {FOGS} echo processes, {size} bytes a message")
    with PausableTestbed(world, plan) as testbed:
        with Fanout(FOGS, size, secure=True) as bare:
            turns = take_turns(testbed, bare, length, length.turns)
            crossed = testbed.bytes_per_decision(length.seconds)
        with Fanout(FOGS, size, secure=True, copies=True) as copied:
            forked = take_turns(testbed, copied, length, max(3, length.turns // 2))
        share = ratio(*turns)
        mark = verdict(met=share >= LOCKSTEP)
        print(f"  {share:5.2f} of bare, {describe(*turns)}; mutual TLS, {broker}")
        print(f"        (target {LOCKSTEP:g}: {mark})")
        rounds = median(forked[1])
        print(
            f"  {ratio(*forked):5.2f} of bare if the echoes are forked copies of one process, which"
        )
        print(f"        share memory ({rounds:,.0f} rounds/s); providers must not")
        memory = testbed.memory()
        if broker == "mosquitto":
            testbed.resume()
            with PausableTestbed(world, replace(plan, broker="builtin")) as other:
                pairs = [
                    (other.measure(length.seconds), testbed.measure(length.seconds).rate)
                    for _ in range(length.turns)
                ]
                memory["broker, built-in"] = other.memory()["broker"]
            share = median(turn.rate / limit for turn, limit in pairs)
            print(f"  {share:5.2f} of mosquitto's rate with the built-in broker")
    with (
        PausableTestbed(world, replace(plan, secure=False)) as plain,
        Fanout(FOGS, size, secure=False) as bare,
    ):
        insecure = take_turns(plain, bare, length, max(3, length.turns // 2))
    print(f"  {ratio(*insecure):5.2f} of bare without TLS on either side, {describe(*insecure)}")

    print(f"\nstart-up until all participants have joined: {testbed.started:.1f} s")
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


def cpu_per_decision(turns: Sequence[Interval]) -> dict[str, float]:
    """Return CPU seconds per decision by kind of participant."""
    decisions = sum(turn.decisions for turn in turns)
    return {kind: sum(turn.cpu[kind] for turn in turns) / decisions for kind in turns[0].cpu}


# --- pipelined -----------------------------------------------------------------------------------


def pipelined(length: Length, lockstep_bytes: dict[str, float] | None) -> None:
    """Print the rates in windows of many decisions, and what crosses each plane."""
    world = make_world(FOGS)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        parl = str(TrainingState(world.agent, "parl", Hyperparameters(), Path(folder)).save_agent())
        plans = [
            Plan(policies=(parl,), window=WINDOW),
            Plan(policies=(parl,), window=1),
            Plan(policies=("round-robin",), window=WINDOW),
        ]
        testbeds = [stack.enter_context(PausableTestbed(world, plan)) for plan in plans]
        for testbed in testbeds:
            testbed.pause()
        turns = [
            [testbed.measure(length.seconds) for testbed in testbeds] for _ in range(length.turns)
        ]
        many, one, blind = zip(*turns, strict=True)
        limits = [turn.rate for turn in one]
        times = ratio(many, limits)
        print(f"\npipelined: PARL (untrained) at level total, {WINDOW} decisions per window")
        print(f"  {times:5.1f} times its lockstep rate: {rate(many):,.0f} and {rate(one):,.0f}")
        print(f"        (target {PIPELINED:g}: {verdict(met=times >= PIPELINED)})")
        print(
            f"  {ratio(blind, limits):5.1f} times: round-robin, without counts, {rate(blind):,.0f}"
        )
        crossed = testbeds[0].bytes_per_decision(length.seconds)
        nodes = testbeds[0].nodes()
    windows = [nodes[at : at + WINDOW] for at in range(0, len(nodes) - WINDOW, WINDOW)]
    addressed = sum(len(set(window)) for window in windows) / len(windows)

    print("\nmessages and bytes per decision")
    print(f"{'':18}{'jsq, lockstep':>24}{'PARL, windows of 64':>26}")
    messages = lockstep_messages(), pipelined_messages(addressed)
    for plane in PLANES:
        cells = [
            f"{number[plane]:>12.2f}" + (f"{size[plane]:>9,.0f} B" if size else "")
            for number, size in zip(messages, (lockstep_bytes, crossed), strict=True)
        ]
        carrier = "MQTT" if plane == "workload" else "gRPC"
        print(f"  {plane + ' ' + carrier:16}{cells[0]:>24}{cells[1]:>26}")
    print("  messages: computed from the protocol; of MQTT those published (each is relayed once)")
    print("  bytes: of the servers' sockets, in and out, with all framing (`ss -ti`)")


def seldom_messages() -> dict[str, float]:
    """Return the messages of sources and of flushes, in which providers send results."""
    sources, flushes = 1 / LARGEST_WINDOW, 1 / FLUSH_EVERY
    done = (FOGS + 1) * flushes
    return {"boundary": 0.0, "workload": sources + done, "time": 2 * sources + done}


def lockstep_messages() -> dict[str, float]:
    """Per window a grant and a count for each provider; grant, done and placement of the agent."""
    messages = seldom_messages()
    messages["boundary"] += FOGS
    messages["workload"] += 1 + FOGS / FLUSH_EVERY
    messages["time"] += FOGS + 2 + 1 / FLUSH_EVERY
    return messages


def pipelined_messages(addressed: float) -> dict[str, float]:
    """Per window also the Cloud, to which all send aggregates, and placements to several nodes."""
    messages = seldom_messages()
    messages["boundary"] += (FOGS + 1) / WINDOW
    messages["workload"] += (addressed + FOGS) / WINDOW
    messages["time"] += (FOGS + 1 + 2) / WINDOW
    return messages


# --- protection ----------------------------------------------------------------------------------


def protection(length: Length) -> None:
    """Print the rates with namespaces and messages of public sizes, and with neither."""
    world = make_world(FOGS)
    print("\nprotection: decisions/s with namespaces and padding, to those with neither")
    with tempfile.TemporaryDirectory() as folder:
        parl = str(TrainingState(world.agent, "parl", Hyperparameters(), Path(folder)).save_agent())
        for label, plan in (
            ("jsq, lockstep", Plan(policies=("jsq",), window=1)),
            (f"PARL, windows of {WINDOW}", Plan(policies=(parl,), window=WINDOW)),
        ):
            with ExitStack() as stack:
                plans = plan, replace(plan, pads=False, separate_users=False)
                testbeds = [stack.enter_context(PausableTestbed(world, each)) for each in plans]
                for testbed in testbeds:
                    testbed.pause()
                turns: tuple[list[Interval], list[Interval]] = [], []
                for turn in range(length.turns):
                    for place in (0, 1) if turn % 2 else (1, 0):  # what comes first pays for it
                        turns[place].append(testbeds[place].measure(length.seconds))
            closed, plain = turns
            shares = sorted(one.rate / other.rate for one, other in zip(closed, plain, strict=True))
            share = median(shares)
            mark = verdict(met=share >= PROTECTED)
            print(f"  {share:5.2f} of the rate without: {label}, {rate(closed):,.0f} to", end=" ")
            print(f"{rate(plain):,.0f} (target {PROTECTED:g}: {mark})")
            cpu = [sum(cpu_per_decision(each).values()) * 1e6 for each in turns]
            print(f"        single turns {shares[0]:.2f} to {shares[-1]:.2f};", end=" ")
            print(f"CPU per decision {cpu[0]:,.0f} to {cpu[1]:,.0f} µs")


# --- growth and training -------------------------------------------------------------------------


def growth(length: Length) -> None:
    """Print the rates of lockstep and of the limit for more and more providers."""
    print("\ngrowth: jsq in lockstep, compared with a bare fan-out to as many processes")
    print(f"{'providers':12}{'of bare':>10}{'decisions/s':>14}{'rounds/s':>12}{'start-up':>12}")
    for fogs in GROWTH:
        with (
            PausableTestbed(
                make_world(fogs), Plan(policies=("jsq",), window=1, patience=120)
            ) as testbed,
            Fanout(fogs, grant_size(), secure=True) as bare,
        ):
            turns, limits = take_turns(testbed, bare, length, max(3, length.turns // 2))
        row = f"{ratio(turns, limits):>10.2f}{rate(turns):>14,.0f}{median(limits):>12,.0f}"
        print(f"  {fogs:<10}{row}{testbed.started:>10.1f} s")


def training(length: Length) -> None:
    """Print how long a training of the paper's length takes on the testbed, and embedded."""
    table = Hyperparameters()
    population, steps = int(POPULATION * length.share), int(STEPS * length.share)
    hyperparameters = table.model_copy(
        update={
            "buffer_population": population / table.buffer_capacity,
            "training_steps": steps,
            "epsilon_first": MEAN_EPSILON,
            "epsilon_last": MEAN_EPSILON,
        }
    )
    points: dict[str, list[tuple[float, int]]] = {}

    def watch(progress: TrainingProgress, _episode: Any) -> None:
        points.setdefault(progress.phase, []).append((time.perf_counter(), progress.decisions))

    scenario = load_scenario(STRESS, {"sources.scale": 100.0})
    with tempfile.TemporaryDirectory() as folder:
        train_federated(scenario, "parl", Path(folder), Plan(), hyperparameters, watch=watch)
    costs = []
    for phase in ("buffer population", "training"):
        (begin, first), (end, last) = points[phase][0], points[phase][-1]
        costs.append((end - begin) / (last - first))
    random, step = cost_of_fogveil()
    rows = {"federated": costs, "embedded": [random, step / table.train_period]}
    lengths = table.population_decisions, table.training_decisions
    print(
        "\ntraining PARL, 10 Fog nodes, federated in windows of 4 decisions (a gradient step each):"
    )
    print("decisions/s while the buffer is filled and in training; hours at the paper's length")
    for mode, (filling, training_) in rows.items():
        hours = (filling * lengths[0] + training_ * lengths[1]) / 3600
        print(f"  {mode:12}{1 / filling:>10,.0f}{1 / training_:>10,.0f}{hours:>10.2f} h")
    print(f"  ({lengths[0]:,} and {lengths[1]:,} decisions, extrapolated; embedded in CPU time)")


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.federated", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter and fewer turns")
    quick = parser.parse_args().quick
    length = Length(0.4, 3, 0.2) if quick else Length()
    os.environ.update(ENVIRONMENT)
    torch.set_num_threads(1)
    begin = time.perf_counter()
    load = os.getloadavg()[0]
    print(f"the federated testbed on {os.cpu_count()} cores; load average before: {load:.1f}")
    print("a share is the median of the turns' ratios, not the ratio of the median rates beside it")
    crossed = lockstep(length)
    pipelined(length, crossed)
    protection(length)
    growth(length)
    training(length)
    print(f"\n(took {time.perf_counter() - begin:.0f} s)")


if __name__ == "__main__":
    main()
