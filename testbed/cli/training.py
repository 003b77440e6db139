"""`fogveil train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.agents import AGENTS, find_agent
from agent.learned import LearningAgent
from agent.learning.hyperparameters import read_hyperparameters
from testbed.cli.shared import (
    Broker,
    Disclosure,
    Federated,
    Insecure,
    Override,
    ScenarioFile,
    SourceProcesses,
    Window,
    bar,
    err,
    federated_plan,
    gather,
    load,
    say,
)


def train(
    scenario: ScenarioFile,
    agent: Annotated[str, typer.Option(help=f"One of {', '.join(AGENTS)}.")],
    rate: Annotated[float | None, typer.Option(help="β: mean time between workloads.")] = None,
    horizon: Annotated[float | None, typer.Option(help="Length of an episode.")] = None,
    seed: Annotated[int | None, typer.Option(help="The scenario's seed.")] = None,
    hyperparameters: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML with what differs from the defaults.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Episodes between checkpoints.")] = 10,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Checkpoints and logs; goes on from there."),
    ] = None,
    disclosure: Disclosure = None,
    override: Override = None,
    federated: Federated = False,
    broker: Broker = "auto",
    window: Window = None,
    source_processes: SourceProcesses = 1,
    insecure: Insecure = False,
) -> None:
    """Train an agent; the same command goes on after a stop, bit for bit."""
    overrides = gather(override, horizon=horizon, seed=seed, disclosure=disclosure)
    chosen = load(scenario, overrides, rate)
    folder = folder or Path("runs/train") / f"{agent}-{chosen.name}-{chosen.seed}"
    from testbed.federated.declared import Declared
    from testbed.federated.training import Progress, train_federated
    from testbed.training import Episode
    from testbed.training import train as train_agent

    kind = find_agent(agent)
    plan = federated_plan(
        federated=federated,
        broker=broker,
        window=window,
        source_processes=source_processes,
        insecure=insecure,
    )
    Declared(kind.needs, kind.decides_ahead).check_window(plan.window, agent)
    given = read_hyperparameters(hyperparameters, kind.defaults)
    columns = [
        *("{task.fields[speed]:,.0f}/s", "ε {task.fields[epsilon]:.2f}"),
        *("loss {task.fields[loss]:.3f}", "return {task.fields[last]:.1f}"),
    ]
    total = given.population_decisions + given.training_decisions
    begin = time.perf_counter()
    before: list[int] = []
    with bar(*columns) as progress:
        task = progress.add_task(agent, total=total, speed=0, epsilon=1.0, loss=0.0, last=0.0)

        def watch(learner: LearningAgent | Progress, episode: Episode | None) -> None:
            if not before:
                before.append(learner.decisions)
            shown: dict[str, Any] = {"last": episode.last_returns} if episode else {}
            speed = (learner.decisions - before[0]) / (time.perf_counter() - begin)
            shown |= {"speed": speed, "epsilon": learner.epsilon, "loss": learner.loss}
            words = f"{agent}: {learner.phase}"
            progress.update(task, completed=learner.decisions, description=words, **shown)
            if episode and not err.is_terminal and episode.episode % 50 == 0:
                err.print(
                    f"episode {episode.episode}, {episode.phase}: {learner.decisions:,} of "
                    f"{total:,} decisions, return {episode.last_returns:.1f}"
                )

        if federated:
            light = train_federated(chosen, agent, folder, plan, given, every, watch)
        else:
            light = train_agent(chosen, agent, folder, given, every, watch)
    say(f"trained: {light} (give it as --policy {light}; log in {folder}/episodes.jsonl)")
