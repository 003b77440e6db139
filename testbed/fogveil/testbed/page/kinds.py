"""What a page shows of each kind of result: one function per kind, which knows its folder.

A new kind is a function that returns the sections of a folder, or None if the folder holds
something else, and a line in `KINDS`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fogveil.agent.learning.checkpoint import read_header
from fogveil.core.errors import InputError
from fogveil.testbed.page.audit_page import AUDIT, audit_sections
from fogveil.testbed.page.document import (
    DataTable,
    Document,
    Facts,
    Listing,
    Paragraph,
    Part,
    Picture,
    Section,
    as_toml,
    provenance_facts,
    scenario_listing,
)
from fogveil.testbed.privacy.leakage import leakage_report
from fogveil.testbed.records.sweep_files import SWEPT
from fogveil.testbed.records.training_log import DESCRIPTION, SCENARIO
from fogveil.testbed.report.averages import Result, read_averages
from fogveil.testbed.report.figures import plot_delays, plot_distribution, plot_loops, plot_training
from fogveil.testbed.report.result_files import CHECKPOINTS, read_trainings
from fogveil.testbed.report.run_figure import plot_over_time
from fogveil.testbed.report.statistics import format_number
from fogveil.testbed.report.sweep_figure import plot_table, series, varied_columns
from fogveil.testbed.report.tables import compare_tables, interval_note, run_tables, summary_line
from fogveil.testbed.scenario.event_text import recorded_events

SHOWN_MEASURES = ("fog_loop", "fog_loop_p95", "cloud_loop", "unserved")
"""What the table of a sweep shows."""


def _json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if there is no such file."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON; write it again") from error
    return content if isinstance(content, dict) else None


def _command(*words: str | Path) -> str:
    return shlex.join(["fogveil", *map(str, words)])


def run_sections(folder: Path) -> list[Section] | None:
    """Return the sections of one run."""
    result = _json(folder / "run.json")
    if result is None:
        return None
    summary = result["summary"]
    redraw = _command("figures", folder, "--out", folder)
    parts: list[Part] = [
        Paragraph(
            f"{summary['workloads']:,} workloads, {summary['unserved']:,} of them unserved at the "
            f"horizon; mode {result['mode']}; {summary_line(summary)}."
        ),
        *map(DataTable.of, run_tables(result)),
    ]
    if (folder / "jobs.parquet").is_file():
        jobs = pq.read_table(folder / "jobs.parquet", columns=["emitted", "returned"])
        draw = partial(plot_over_time, events=recorded_events(result))
        horizon = result["scenario"]["horizon"]
        parts.append(Picture.drawn("Fog loop over simulated time", redraw, draw, jobs, horizon))
    parts += [
        Picture.drawn(
            "Where the workloads went",
            redraw,
            plot_distribution,
            {result["label"]: summary["placed"]},
            result["nodes"],
            result["categories"],
        ),
        provenance_facts(result),
        scenario_listing(result["scenario"]),
    ]
    return [Section(f"{result['name']} under {result['label']}", parts)]


def comparison_sections(folder: Path) -> list[Section] | None:
    """Return the sections of a comparison."""
    path = folder / "compare.parquet"
    if not path.is_file():
        return None
    table = pq.read_table(path)
    averages = read_averages(table)
    described = _json(folder / "compare.json") or {}
    metadata = json.loads((table.schema.metadata or {}).get(b"provenance", b"null"))
    reference = described.get("reference", "jsq")
    origin = {"provenance": described.get("provenance") or metadata}
    redraw = (origin["provenance"] or {}).get("command") or _command("compare")
    parts: list[Part] = [
        Paragraph(f"Mean delays in simulated time units; {interval_note(averages)}."),
        *map(DataTable.of, compare_tables(averages, reference)),
        Picture.drawn("Both loops over the rate of workloads", redraw, plot_loops, averages),
        Picture.drawn("The five delays at the highest rate", redraw, plot_delays, averages),
    ]
    if "seeds" in described:
        seeds = ", ".join(map(str, described["seeds"]))
        parts.append(Facts({"seeds": seeds, "ratios refer to": reference}))
    parts.append(provenance_facts(origin))
    name = folder.name
    if "scenario" in described:
        name = described["scenario"]["name"]
        parts.append(scenario_listing(described["scenario"]))
    return [Section(f"Comparison on {name}", parts)]


def sweep_sections(folder: Path) -> list[Section] | None:
    """Return the sections of a sweep."""
    path = folder / "results.parquet"
    if not path.is_file():
        return None
    table = pq.read_table(path)
    varied = varied_columns(table)
    if not varied:
        return None
    numeric = [
        name
        for name in varied
        if pa.types.is_floating(table.schema.field(name).type)
        or pa.types.is_integer(table.schema.field(name).type)
    ]
    x = (numeric or varied)[0]
    by = ["policy", *(name for name in varied if name != x)]
    redraw = _command("plot", folder, "--x", x, "--y", "mean", "--by", ",".join(by))
    commits = {str(commit) for commit in table["commit"].to_pylist()}
    hashes = f"{table.num_rows:,} runs, each with its run hash in {folder}/results.csv"
    parts: list[Part] = [
        _sweep_table(table, x, by),
        Picture.drawn(f"Mean Fog loop over {x}", redraw, plot_table, table, x, "mean", by),
        Facts({"runs": hashes, "commit": ", ".join(sorted(commits)), **_versions(table)}),
    ]
    if described := _json(folder / SWEPT):
        parts.append(Facts({"command": (described["provenance"] or {}).get("command", "")}))
        parts.append(Listing("what is varied (TOML)", as_toml(described["sweep"])))
        parts += map(scenario_listing, described["scenarios"])
    return [Section(f"Sweep {folder.name}", parts)]


def _versions(table: pa.Table) -> dict[str, str]:
    names = [name for name in table.column_names if name.startswith("version.")]
    each = (f"{name.removeprefix('version.')} {table[name][0].as_py()}" for name in names)
    return {"versions": ", ".join(each)} if names and table.num_rows else {}


def _sweep_table(table: pa.Table, x: str, by: list[str]) -> DataTable:
    """Return the measures of each point, means with intervals over seeds or trainings."""
    cells: dict[tuple[str, ...], list[str]] = {}
    for place, measure in enumerate(SHOWN_MEASURES):
        with suppress(InputError):  # a measure that no run has, as without a Cloud loop
            for group, values in series(table, x, measure, by).items():
                for key, value in values.items():
                    shown = format_number(key) if isinstance(key, float) else str(key)
                    row = cells.setdefault((*group, shown), ["–"] * len(SHOWN_MEASURES))
                    row[place] = str(value)
    head = (*by, x, *(measure.replace("_", " ") for measure in SHOWN_MEASURES))
    rows = [(*names, *row) for names, row in cells.items()]
    return DataTable("", head, rows, "Means with 95 % intervals, in simulated time units.")


def training_sections(folder: Path) -> list[Section] | None:
    """Return the sections of a training."""
    described = _json(folder / DESCRIPTION)
    if described is None:
        return None
    (training,) = read_trainings([folder])[:1] or (None,)
    if training is None or not training.episodes:
        raise InputError(f"{folder}: the training has no finished episode yet")
    redraw = _command("figures", folder, "--out", folder)
    last = training.episodes[-1]
    logs = {training.label: [training.episodes]}
    parts: list[Part] = [
        Paragraph(
            f"{training.agent} in {described['scenario']}: {len(training.episodes):,} episodes, "
            f"{last['decisions']:,} decisions, {last['training_steps']:,} training steps, "
            f"{last['cpu_seconds']:,.0f} s of CPU time."
        ),
        Picture.drawn("Return over the training", redraw, plot_training, logs),
        _episode_table(training.episodes),
        provenance_facts(described),
    ]
    for name in CHECKPOINTS:
        with suppress(InputError, KeyError):
            values = read_header(folder / name)["hyperparameters"]
            parts.append(
                Facts({key.replace("_", " "): str(value) for key, value in values.items()})
            )
            break
    if scenario := _json(folder / SCENARIO):
        parts.append(scenario_listing(scenario))
    return [Section(f"Training {folder.name}", parts)]


def _episode_table(episodes: list[dict[str, Any]]) -> DataTable:
    """Return about twenty episodes, evenly over the training, and the last."""
    step = max(len(episodes) // 20, 1)
    chosen = [*episodes[:-1:step], episodes[-1]]
    rows = [
        (
            str(each["episode"]),
            each["phase"],
            f"{each['decisions']:,}",
            f"{each['epsilon']:.3f}",
            format_number(each["returned"]),
            format_number(each["last_returns"]),
            "–" if each["fog_loop"] is None else format_number(each["fog_loop"]),
        )
        for each in chosen
    ]
    head = ("episode", "phase", "decisions", "ε", "return", "mean of the last 10", "Fog loop")
    return DataTable("Episodes", head, rows, "The agent does not know the Fog loop.")


def leakage_sections(folder: Path) -> list[Section] | None:
    """Return the sections of measurements of leakage."""
    found = [_json(folder / f"{name}.json") for name in leakage_report.STYLES]
    results: list[Result] = [each for each in found if each and "attacker" in each]
    if not results:
        return None
    parts: list[Part] = []
    for result in results:
        parts.append(Paragraph(leakage_report.verdict(result)))
        parts += map(DataTable.of, leakage_report.tables(result))
        parts.append(provenance_facts(result))
    alike = leakage_report.comparable_results(folder, results[0])
    origin = results[0].get("provenance") or {}
    redraw = origin.get("command") or _command("leakage", results[0]["name"])
    parts.insert(
        0,
        Picture.drawn(
            "What the agent infers over its decisions", redraw, leakage_report.plot, alike
        ),
    )
    parts.append(scenario_listing(results[0]["scenario"]))
    return [Section(f"Leakage on {results[0]['name']}", parts)]


def audit_result_sections(folder: Path) -> list[Section] | None:
    """Return the sections of an audit."""
    result = _json(folder / AUDIT)
    return None if result is None else audit_sections(result)


KINDS: dict[str, Callable[[Path], list[Section] | None]] = {
    "run": run_sections,
    "comparison": comparison_sections,
    "sweep": sweep_sections,
    "training": training_sections,
    "leakage": leakage_sections,
    "audit": audit_result_sections,
}
"""The kinds of results that a page can show, by name."""


def find_sections(folder: Path) -> list[Section]:
    """Return the sections of everything that a folder holds."""
    if not folder.is_dir():
        raise InputError(
            f"{folder}: is not a folder; give one that run, compare, sweep, train, audit --out or "
            "leakage wrote to"
        )
    sections = list(_find(folder))
    if not sections:
        below = [path.parent for path in sorted(folder.glob("*/run.json"))]
        sections = [section for each in below for section in _find(each)]
    if not sections:
        raise InputError(
            f"{folder}: holds no result; expected the folder of a run, comparison, sweep, "
            "training, audit or leakage measurement"
        )
    return sections


def _find(folder: Path) -> Iterator[Section]:
    for name, read in KINDS.items():
        try:
            yield from read(folder) or ()
        except (KeyError, TypeError, IndexError, pa.ArrowException) as error:
            raise InputError(
                f"{folder}: the {name} in it cannot be shown ({type(error).__name__}: {error}); it "
                "is of another version of fogveil, or damaged: run it again"
            ) from error


def make_document(
    folders: list[Path], progress: Callable[[int], None] = lambda _done: None
) -> Document:
    """Return the page of some folders; it says how many of them it has read."""
    sections = []
    for done, folder in enumerate(folders, 1):
        sections += find_sections(folder)
        progress(done)
    runs = [run for folder in folders if (run := _json(folder / "run.json"))]
    if len(runs) > 1:
        sections.insert(0, _overview(runs))
    title = sections[0].title if len(sections) == 1 else f"fogveil: {len(sections)} results"
    return Document(title, sections)


def _overview(runs: list[Result]) -> Section:
    head = ("policy", "scenario", "level", "seed", "Fog loop", "p95", "unserved", "run hash")
    rows = [
        (
            run["label"],
            run["name"],
            run["level"],
            str(run["seed"]),
            *(format_number(run["summary"][key]) for key in ("fog_loop", "fog_loop_p95")),
            f"{run['summary']['unserved']:,}",
            run["run_hash"][:16],
        )
        for run in runs
    ]
    return Section("All runs", [DataTable("", head, rows)])
