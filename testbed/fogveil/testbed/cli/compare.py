"""`fogveil compare`, `evaluate` and `figures`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fogveil.core.errors import InputError
from fogveil.testbed.cli.around import AroundEvents, print_around, with_oracle
from fogveil.testbed.cli.options import (
    ORACLE,
    AsJson,
    Disclosure,
    Force,
    Override,
    ScenarioFile,
    WorkersOption,
    collect_overrides,
    err,
    load,
    out,
    print_json,
    print_line,
    progress_bar,
    say,
)
from fogveil.testbed.experiments.comparison import (
    Comparison,
    RunWork,
    find_finished,
    parse_numbers,
    prepare,
)
from fogveil.testbed.experiments.comparison import evaluate as evaluate_comparison
from fogveil.testbed.records.output import claim_folder, write_json
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.report import tables
from fogveil.testbed.report.averages import average_table
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.load import find_scenario
from fogveil.testbed.workers.choice import execute, parse_workers

COMPARED, EVALUATED = Path("runs/compare"), Path("runs/evaluate")
"""Results of runs, for comparisons without a folder of their own, and below them their tables."""

Rates = Annotated[
    str | None,
    typer.Option(help="β values separated by commas. [default: that of the scenario]"),
]
Horizons = Annotated[
    str | None,
    typer.Option(help="Horizons separated by commas. [default: that of the scenario]"),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="For results, tables and figures. [default: below runs/, named by what is compared]",
    ),
]
Seeds = Annotated[
    int, typer.Option(min=1, help="Runs of each policy, rate and horizon, on common seeds.")
]


def compare(
    scenario: ScenarioFile,
    names: Annotated[
        str,
        typer.Option(
            "--policies", help="Names from `fogveil policies`, or files, separated by commas."
        ),
    ] = "random,round-robin,nearest,fastest,electre,p2c,jsq,ci-setr,veil,setr",
    rates: Rates = None,
    horizons: Horizons = None,
    seeds: Seeds = 5,
    reference: Annotated[
        str, typer.Option(help="The policy that ratios refer to, paired by seed.")
    ] = ORACLE,
    disclosure: Disclosure = None,
    override: Override = None,
    around: AroundEvents = None,
    folder: Folder = None,
    force: Force = False,
    workers: WorkersOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare policies over rates, horizons and seeds.

    Runs that finished before are not repeated. Every policy receives the same workloads (common
    random numbers) and exactly the disclosure level it needs, which the table shows; --disclosure
    fixes one level for all and refuses policies that need more.
    """
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    overrides = collect_overrides(override, disclosure=disclosure)
    options = (scenario, overrides, chosen, rates, horizons, seeds, reference, folder)
    _compare(*options, workers, common=COMPARED, force=force, as_json=as_json, around=around)


def _compare(
    scenario: Path,
    overrides: dict[str, Any],
    chosen: list[str],
    rates: str | None,
    horizons: str | None,
    seeds: int,
    reference: str,
    given: Path | None,
    workers: str | None,
    *,
    common: Path,
    force: bool,
    as_json: bool,
    around: float | None = None,
) -> None:
    if rates is not None and load_scenario(scenario, overrides).sources.kind == "trace":
        raise InputError(
            "--rates is for poisson or deterministic sources; this scenario replays a trace: "
            "leave --rates out"
        )
    chosen_workers = parse_workers(workers)
    base = load(scenario, overrides, None)
    if around is not None:
        chosen = with_oracle(chosen, base, around, overrides)
    comparison = Comparison(
        file=scenario,
        overrides=overrides,
        policies=tuple(dict.fromkeys(chosen)),
        rates=(None,) if rates is None else parse_numbers(rates, "--rates"),
        horizons=(base.horizon,) if horizons is None else parse_numbers(horizons, "--horizons"),
        seeds=seeds,
        out=given or common,
    )
    if reference not in (*comparison.policies, ORACLE):
        raise InputError(
            f"--reference {reference}: expected one of the compared policies, "
            f"{', '.join(comparison.policies)}"
        )
    folder = given or common / f"{base.name}-{comparison.digest(reference)[:8]}"
    find_finished(comparison)  # refuses what is wrong before anything is written
    where = str(find_scenario(scenario).resolve())
    contents = {"kind": "compare", "scenario": where, "set": overrides}
    claim_folder(folder, contents, force=force)
    done, outstanding = prepare(comparison)
    total, finished = len(done) + len(outstanding), len(done)
    err.print(f"{total} runs, {finished} of them done before, results in {comparison.out}/runs")
    try:
        with progress_bar("{task.completed}/{task.total} runs") as progress:
            task = progress.add_task(f"comparing on {base.name}", total=total, completed=finished)
            pieces = [RunWork(comparison, run) for run in outstanding]
            for _ in execute(pieces, chosen_workers, say):
                finished += 1
                progress.update(task, completed=finished)
    except KeyboardInterrupt:
        err.print(f"stopped with {finished} of {total} runs done; the same command continues")
        raise
    averages = evaluate_comparison(comparison, reference)
    console = err if as_json else out
    for table in tables.compare_tables(averages, reference):
        tables.print_table(table, console)
    around_paths: list[Path] = []
    if around is not None:
        around_paths = print_around(comparison, base, around, folder, console)
    origin = provenance()
    paths = tables.write_comparison(averages, reference, folder, origin)
    paths += [*around_paths, folder / "compare.json"]
    write_json(paths[-1], {**_described(comparison, base, reference), "provenance": origin})
    from fogveil.testbed.report.figures import (  # matplotlib takes a while to load
        plot_delays,
        plot_loops,
    )

    plot_loops(averages, folder / "loops")
    plot_delays(averages, folder / "delays")
    paths += [folder / "loops.png", folder / "delays.png"]
    names = ", ".join(path.name for path in paths)
    print_line(f"written to {folder}: {names}", console)
    if as_json:
        rows = average_table(averages).to_pylist()
        print_json({"reference": reference, "averages": rows, "written": paths})


def _described(comparison: Comparison, base: Scenario, reference: str) -> dict[str, Any]:
    """Return what was compared, for compare.json."""
    return {
        "scenario": base.model_dump(mode="json"),
        "policies": list(comparison.policies),
        "rates": list(comparison.rates),
        "horizons": list(comparison.horizons),
        "seeds": list(range(base.seed, base.seed + comparison.seeds)),
        "reference": reference,
    }


def evaluate(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="The agent.npz or checkpoint.npz of a training."),
    ],
    scenario: ScenarioFile,
    against: Annotated[
        str, typer.Option(help="Policies to compare it with, separated by commas.")
    ] = "random,jsq,setr",
    rates: Rates = None,
    horizons: Horizons = None,
    seeds: Seeds = 5,
    override: Override = None,
    folder: Folder = None,
    force: Force = False,
    workers: WorkersOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare a trained agent with other policies.

    The agent acts without exploration.
    """
    chosen = [str(checkpoint), *(name.strip() for name in against.split(",") if name.strip())]
    overrides = collect_overrides(override)
    options = (scenario, overrides, chosen, rates, horizons, seeds, ORACLE, folder)
    _compare(*options, workers, common=EVALUATED, force=force, as_json=as_json)


def figures(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS…", help="Folders of comparisons, runs and trainings."),
    ],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="For the figures.")] = Path(
        "runs/figures"
    ),
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures from results.

    They are: the two loops, the five delays, the distribution of workloads, the training.
    """
    from fogveil.testbed.report.gallery import draw_all

    with progress_bar() as progress:
        task = progress.add_task("drawing", total=None)
        drawn = draw_all(folders, folder)
        progress.update(task, completed=1)
    for path in drawn.paths:
        print_line(f"written: {path}.png, .svg and .pdf", err if as_json else out)
    if drawn.left_out:
        print_line(f"left out: {'; '.join(drawn.left_out)}", err)
    if as_json:
        print_json({"written": drawn.paths, "left_out": drawn.left_out})
