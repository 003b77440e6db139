"""The command `fogveil`: reads its arguments, shows results, and turns errors into a sentence."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from agent.agents import AGENTS, find_agent
from agent.learned import LearningAgent
from agent.learning.hyperparameters import read_hyperparameters
from fogveil import __version__
from fogveil.errors import FogveilError, InputError
from testbed import tables
from testbed.compare import Plan, execute, parse_numbers, prepare, write_tables
from testbed.compare import evaluate as evaluate_plan
from testbed.run import run_embedded
from testbed.scenario import Scenario, load_scenario
from testbed.scenario.load import parse_overrides
from testbed.world import build_world

TOUR = """
Spread IoT work over fog providers that will not say how fast or how loaded they are.

A scenario is one TOML file; a policy decides which Fog node serves each workload, from what the
providers disclose: nothing, the total of queued jobs, each node's count, or everything.

\b
  fogveil scenario show scenarios/paper.toml        what is in it, and a picture
  fogveil scenario show scenarios/paper.toml --as fog-3   what one participant is given
  fogveil policies                                  who decides, and what each needs to know
  fogveil run scenarios/tiny.toml --policy jsq      one run, seconds
  fogveil compare scenarios/paper.toml --policies jsq,ci-setr,setr --seeds 5
  fogveil train scenarios/tiny.toml --agent parl --out runs/parl     the paper's agent
  fogveil evaluate runs/parl/agent.npz scenarios/tiny.toml
  fogveil figures runs/compare runs/parl                       the paper's figures
"""

app = typer.Typer(
    help=TOUR,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
scenario_app = typer.Typer(help="Look at a scenario.", no_args_is_help=True)
app.add_typer(scenario_app, name="scenario")

ORACLE = "setr"
out = Console()
err = Console(stderr=True)

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (TOML).")]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace a key, as in roles.fog=20."),
]
Disclosure = Annotated[
    str | None,
    typer.Option(help="What providers disclose: none, total, count or full."),
]


def _say(sentence: str, console: Console = out) -> None:
    """Print a sentence as it is: paths are not coloured, cut or wrapped."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _overrides(given: list[str] | None, **options: Any) -> dict[str, Any]:
    found = parse_overrides(given or [])
    found |= {key: value for key, value in options.items() if value is not None}
    return found


def _load(file: Path, overrides: dict[str, Any], rate: float | None) -> Scenario:
    if rate is not None:
        overrides = {**overrides, "sources.scale": rate}
        if load_scenario(file).sources.kind == "trace":
            raise InputError("--rate is for poisson or deterministic sources; a trace has its own")
    return load_scenario(file, overrides)


def _bar(*columns: str) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *(TextColumn(column) for column in columns),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )


@app.command()
def run(
    scenario: ScenarioFile,
    policy: Annotated[
        str, typer.Option(help="A name from `fogveil policies`, file.npz, or file.py:Class.")
    ],
    rate: Annotated[float | None, typer.Option(help="β: mean time between workloads.")] = None,
    horizon: Annotated[
        float | None, typer.Option(help="Simulated time at which sources stop.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The scenario's seed.")] = None,
    disclosure: Disclosure = None,
    override: Override = None,
    folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep the records here.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Run a scenario under one policy and print its delays."""
    overrides = _overrides(override, horizon=horizon, seed=seed, disclosure=disclosure)
    chosen = _load(scenario, overrides, rate)
    with _bar("{task.fields[jobs]:,} jobs") as bar:
        task = bar.add_task(f"{chosen.name} under {policy}", total=chosen.horizon, jobs=0)

        def progress(time: float, jobs: int) -> None:
            bar.update(task, completed=time, jobs=jobs)

        result = run_embedded(chosen, policy, folder, progress)
    console = err if as_json else out
    for table in tables.run_tables(result):
        console.print(table)
    summary = result["summary"]
    console.print(
        f"{summary['workloads']:,} workloads, {summary['unserved']:,} of them unserved "
        f"at the horizon\nrun hash {result['run_hash']}"
    )
    if folder:
        _say(f"records: {folder}/jobs.parquet, decisions.parquet, run.json", console)
    if as_json:
        keys = ("name", "policy", "level", "mode", "seed", "run_hash", "wall_seconds")
        line = {key: result[key] for key in (*keys, "cpu_seconds")} | result["summary"]
        print(json.dumps(line))  # noqa: T201 (the promised last line)


@app.command()
def compare(
    scenario: ScenarioFile,
    names: Annotated[
        str, typer.Option("--policies", help="Names from `fogveil policies`, with commas.")
    ] = "random,round-robin,nearest,fastest,electre,p2c,jsq,ci-setr,veil,setr",
    rates: Annotated[
        str | None, typer.Option(help="β values with commas; without it the scenario's own.")
    ] = None,
    horizons: Annotated[
        str | None, typer.Option(help="Horizons with commas; without it the scenario's own.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per cell, on common seeds.")] = 5,
    reference: Annotated[
        str, typer.Option(help="The policy that ratios are taken to, paired by seed.")
    ] = ORACLE,
    disclosure: Disclosure = None,
    override: Override = None,
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Results, tables and figures go here.")
    ] = Path("runs/compare"),
) -> None:
    """Compare policies over rates, horizons and seeds; a re-run skips what is done.

    Every policy sees the same workloads (common random numbers) and exactly the disclosure level
    it needs, which the table shows; --disclosure fixes one for all and refuses what needs more.
    """
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    overrides = _overrides(override, disclosure=disclosure)
    _compare(scenario, overrides, chosen, rates, horizons, seeds, reference, folder)


def _compare(
    scenario: Path,
    overrides: dict[str, Any],
    chosen: list[str],
    rates: str | None,
    horizons: str | None,
    seeds: int,
    reference: str,
    folder: Path,
) -> None:
    base = load_scenario(scenario, overrides)
    if rates and base.sources.kind == "trace":
        raise InputError("--rates is for poisson or deterministic sources; a trace has its own")
    plan = Plan(
        file=scenario,
        overrides=overrides,
        policies=tuple(dict.fromkeys(chosen)),
        rates=parse_numbers(rates, "--rates") if rates else (None,),
        horizons=parse_numbers(horizons, "--horizons") if horizons else (base.horizon,),
        seeds=seeds,
        out=folder,
    )
    if reference not in (*plan.policies, ORACLE):
        raise InputError(f"--reference {reference}: expected one of the policies compared")
    done, to_do = prepare(plan)
    total, finished = len(done) + len(to_do), len(done)
    err.print(f"{total} runs, {finished} of them done before, results in {plan.out}/runs")
    try:
        with _bar("{task.completed}/{task.total} runs") as bar:
            task = bar.add_task(f"comparing on {base.name}", total=total, completed=finished)
            for _ in execute(plan, to_do):
                finished += 1
                bar.update(task, completed=finished)
    except KeyboardInterrupt:
        err.print(f"stopped with {finished} of {total} runs done; the same command goes on")
        raise
    rows = evaluate_plan(plan, reference)
    for table in tables.compare_tables(rows, reference):
        out.print(table)
    paths = write_tables(rows, plan.out)
    from testbed.figures import plot_delays, plot_loops  # matplotlib takes a while to load

    plot_loops(rows, plan.out / "loops")
    plot_delays(rows, plan.out / "delays")
    paths += [plan.out / "loops.png", plan.out / "delays.png"]
    _say("written: " + ", ".join(str(path) for path in paths))


@app.command()
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
) -> None:
    """Train an agent; the same command goes on after a stop, bit for bit."""
    overrides = _overrides(override, horizon=horizon, seed=seed, disclosure=disclosure)
    chosen = _load(scenario, overrides, rate)
    folder = folder or Path("runs/train") / f"{agent}-{chosen.name}-{chosen.seed}"
    from testbed.training import Episode
    from testbed.training import train as train_agent

    kind = find_agent(agent)
    given = read_hyperparameters(hyperparameters, kind.defaults)
    columns = [
        *("{task.fields[speed]:,.0f}/s", "ε {task.fields[epsilon]:.2f}"),
        *("loss {task.fields[loss]:.3f}", "return {task.fields[last]:.1f}"),
    ]
    total = given.population_decisions + given.training_decisions
    begin = time.perf_counter()
    before: list[int] = []
    with _bar(*columns) as bar:
        task = bar.add_task(agent, total=total, speed=0, epsilon=1.0, loss=0.0, last=0.0)

        def watch(learner: LearningAgent, episode: Episode | None) -> None:
            if not before:
                before.append(learner.decisions)
            shown: dict[str, Any] = {"last": episode.last_returns} if episode else {}
            speed = (learner.decisions - before[0]) / (time.perf_counter() - begin)
            shown |= {"speed": speed, "epsilon": learner.epsilon, "loss": learner.loss}
            words = f"{agent}: {learner.phase}"
            bar.update(task, completed=learner.decisions, description=words, **shown)
            if episode and not err.is_terminal and episode.episode % 50 == 0:
                err.print(
                    f"episode {episode.episode}, {episode.phase}: {learner.decisions:,} of "
                    f"{total:,} decisions, return {episode.last_returns:.1f}"
                )

        light = train_agent(chosen, agent, folder, given, every, watch)
    _say(f"trained: {light} (give it as --policy {light}; log in {folder}/episodes.jsonl)")


@app.command()
def evaluate(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="A training's agent.npz or checkpoint.npz.")
    ],
    scenario: ScenarioFile,
    against: Annotated[str, typer.Option(help="Policies to put beside it.")] = "random,jsq,setr",
    rates: Annotated[str | None, typer.Option(help="β values with commas.")] = None,
    horizons: Annotated[str | None, typer.Option(help="Horizons with commas.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per cell, on common seeds.")] = 5,
    override: Override = None,
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Results, tables and figures go here.")
    ] = Path("runs/evaluate"),
) -> None:
    """Evaluate a trained agent, greedily, beside other policies."""
    chosen = [str(checkpoint), *(name.strip() for name in against.split(",") if name.strip())]
    _compare(scenario, _overrides(override), chosen, rates, horizons, seeds, ORACLE, folder)


@app.command()
def figures(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUNS…", help="Folders of comparisons and trainings.")
    ],
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the pictures go.")
    ] = Path("runs/figures"),
) -> None:
    """Draw the paper's figures from results: loops, delays, distribution, training."""
    from testbed.gallery import draw_all

    for path in draw_all(folders, folder):
        _say(f"written: {path}.png and .svg")


@app.command(name="policies")
def list_policies() -> None:
    """List the policies and what each needs to know."""
    out.print(tables.policy_table())
    out.print("your own: --policy my_policy.py:MyPolicy (a subclass of agent.policy.Policy)")


@scenario_app.command()
def show(
    scenario: ScenarioFile,
    participant: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Print exactly what agent, sources, clock, fog-3 … get."
        ),
    ] = None,
    override: Override = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="NAME", help="Where to draw it: NAME.png, NAME.svg.")
    ] = None,
) -> None:
    """Summarise a scenario and draw its topology, or show one participant's share of it."""
    world = build_world(load_scenario(scenario, _overrides(override)))
    if participant is not None:
        print(json.dumps(world.projection(participant), indent=2))  # noqa: T201
        return
    for table in tables.scenario_tables(world):
        out.print(table)
    from testbed.drawing import draw_topology

    target = picture or Path("runs") / f"{world.scenario.name}-topology"
    draw_topology(world, target)
    _say(f"written: {target}.png, {target}.svg")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"fogveil {__version__}")  # noqa: T201
        raise typer.Exit


class Terminated(BaseException):
    """The process was asked to end: what is half done is cleaned up on the way out."""


def _terminate(_number: int, _frame: object) -> None:
    raise Terminated


def main() -> None:
    """Run the command; an error is one sentence and an exit code (see fogveil.errors)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without β gets a question mark
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(standalone_mode=True)
    except FogveilError as error:
        if os.environ.get("FOGVEIL_TRACEBACK"):
            raise
        _say(f"fogveil: {error}", err)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Terminated:
        sys.exit(143)


if __name__ == "__main__":
    main()
