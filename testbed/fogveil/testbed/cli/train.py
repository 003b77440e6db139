"""`fogveil train`."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.checkpoint import read_header
from fogveil.agent.learning.hyperparameters import read_hyperparameters
from fogveil.agent.learning.registry import AGENTS, find_agent
from fogveil.agent.learning.training_state import CHECKPOINT
from fogveil.agent.learning.transfer import Transfer
from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import (
    AsJson,
    Broker,
    Disclosure,
    Federated,
    Insecure,
    Losses,
    OnLoss,
    Override,
    Rate,
    ScenarioFile,
    Seed,
    SourceProcesses,
    Window,
    collect_overrides,
    err,
    federated_plan,
    load,
    out,
    print_json,
    print_line,
    progress_bar,
)
from fogveil.testbed.cli.seeds import with_seed


def train(
    scenario: ScenarioFile,
    agent: Annotated[str, typer.Option(help=f"One of {', '.join(AGENTS)}.")],
    rate: Rate = None,
    horizon: Annotated[float | None, typer.Option(help="Simulated time per episode.")] = None,
    seed: Seed = None,
    hyperparameters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file with the values that differ from defaults."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Start from a trained agent's weights, with defaults of a shorter training; veil "
            "and veil-total may come from a scenario of another shape.",
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="With --from checkpoint.npz: from its buffer, too.")
    ] = False,
    every: Annotated[int, typer.Option(min=1, help="Episodes between checkpoints.")] = 10,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="For checkpoints and logs. [default: runs/train/AGENT-SCENARIO-SEED, without "
            "a seed where it is drawn]",
        ),
    ] = None,
    disclosure: Disclosure = None,
    override: Override = None,
    federated: Federated = False,
    broker: Broker = "auto",
    window: Window = None,
    source_processes: SourceProcesses = 1,
    insecure: Insecure = False,
    on_loss: OnLoss = Losses.RECOVER,
    as_json: AsJson = False,
) -> None:
    """Train an agent, or continue its training.

    After a stop the same command continues and gives the same agent, bit for bit. Needs the
    packages of `pip install 'fogveil[train]'`.
    """
    overrides = collect_overrides(override, horizon=horizon, seed=seed, disclosure=disclosure)
    from fogveil.testbed.records.training_log import LoggedEpisode, kept_seed

    chosen = load(scenario, overrides, rate)
    if federated:
        drawn = "seed" not in overrides
        name = f"{agent}-{chosen.name}" + ("" if drawn else f"-{chosen.seed}")
        folder = folder or Path("runs/train") / name
        kept = kept_seed(folder, chosen.seed)
        chosen = load(scenario, with_seed(overrides, federated=True, earlier=kept), rate)
    folder = folder or Path("runs/train") / f"{agent}-{chosen.name}-{chosen.seed}"
    from fogveil.testbed.experiments.embedded_training import train as train_agent
    from fogveil.testbed.experiments.federated_training import TrainingProgress, train_federated
    from fogveil.testbed.launch.policy_requirements import PolicyRequirements

    kind = find_agent(agent)
    plan = federated_plan(
        federated=federated,
        broker=broker,
        window=window,
        source_processes=source_processes,
        insecure=insecure,
        on_loss=on_loss,
    )
    PolicyRequirements.of(kind).check_window(plan.window, agent)
    if replay and not start:
        raise InputError("--replay takes over the buffer of an earlier training: name it by --from")
    transfer = Transfer(start, replay=replay) if start else None
    defaults = transfer.check(agent) if transfer else kind.defaults
    values = read_hyperparameters(hyperparameters, defaults)
    columns = [
        *("{task.fields[speed]:,.0f}/s", "ε {task.fields[epsilon]:.2f}"),
        *("loss {task.fields[loss]:.3f}", "return {task.fields[last]:.1f}"),
    ]
    total = values.population_decisions + values.training_decisions
    begin = time.perf_counter()
    decisions_before: list[int] = []
    with progress_bar(*columns) as progress:
        task = progress.add_task(agent, total=total, speed=0, epsilon=1.0, loss=0.0, last=0.0)

        def watch(learner: LearningAgent | TrainingProgress, episode: LoggedEpisode | None) -> None:
            if not decisions_before:
                decisions_before.append(learner.decisions)
            shown: dict[str, Any] = {"last": episode.last_returns} if episode else {}
            speed = (learner.decisions - decisions_before[0]) / (time.perf_counter() - begin)
            shown |= {"speed": speed, "epsilon": learner.epsilon, "loss": learner.loss}
            phase = f"{agent}: {learner.phase}"
            progress.update(task, completed=learner.decisions, description=phase, **shown)
            if episode and not err.is_terminal and episode.episode % 50 == 0:
                err.print(
                    f"episode {episode.episode}, {episode.phase}: {learner.decisions:,} of "
                    f"{total:,} decisions, return {episode.last_returns:.1f}"
                )

        try:
            if federated:
                announce = partial(print_line, console=err)
                light = train_federated(
                    *(chosen, agent, folder, plan, values, every, watch, announce, transfer)
                )
            else:
                light = train_agent(chosen, agent, folder, values, every, watch, transfer)
        except KeyboardInterrupt:
            progress.stop()
            print_line(f"stopped; {_how_to_continue(folder, every)}", err)
            raise
    log = folder / "episodes.jsonl"
    print_line(
        f"trained: {light} (use it as --policy {light}; log in {log})", err if as_json else out
    )
    if as_json:
        print_json({"agent": agent, "scenario": chosen.name, "trained": light, "log": log})


def _how_to_continue(folder: Path, every: int) -> str:
    """Return what a stopped training can be continued from."""
    checkpoint = folder / CHECKPOINT
    if not checkpoint.exists():
        return (
            f"there is no checkpoint in {folder} yet (one is written every {every} episodes): the "
            "same command begins again"
        )
    done = read_header(checkpoint)["episodes"]
    return f"the same command continues from the checkpoint in {folder}, with episode {done}"
