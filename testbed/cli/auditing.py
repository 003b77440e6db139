"""`fogveil audit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from testbed.cli.shared import (
    Broker,
    Disclosure,
    Docker,
    Override,
    ScenarioFile,
    err,
    federated_plan,
    gather,
    load,
    out,
    say,
)
from testbed.records import writing

STYLES = {"PASS": "green", "FAIL": "bold red", "NOT SHOWN": "yellow", "MEASURED": "cyan"}
SHOWN = 8
"""Details of what failed that the console shows."""


def audit(
    scenario: ScenarioFile,
    policy: Annotated[
        str | None, typer.Option(help="Who decides meanwhile. [one that looks at all it may]")
    ] = None,
    horizon: Annotated[
        float | None, typer.Option(help="Simulated time audited. [about 300 decisions]")
    ] = None,
    disclosure: Disclosure = None,
    override: Override = None,
    broker: Broker = "auto",
    docker: Docker = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the same as a page.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Attack a testbed with planted secrets and judge every promise; exit code 1 if one fails."""
    from testbed.audit.auditing import DECISIONS
    from testbed.audit.auditing import audit as run_audit
    from testbed.audit.page import page
    from testbed.audit.stage import horizon_for

    chosen = load(scenario, gather(override, disclosure=disclosure, horizon=horizon), None)
    if horizon is None:
        chosen = chosen.model_copy(update={"horizon": horizon_for(chosen, DECISIONS)})
    plan = federated_plan(
        federated=True, broker=broker, window=None, source_processes=1, docker=docker
    )
    if policy:
        plan = replace(plan, policies=(policy,))
    findings = run_audit(chosen, plan, lambda words: say(f"… {words}", err))
    failed = [finding for finding in findings if finding.verdict == "FAIL"]
    unshown = [finding for finding in findings if finding.verdict == "NOT SHOWN"]
    console = err if as_json else out
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        verdict = finding.verdict.value
        words = Text.assemble((finding.promise, "bold"), f"\n{finding.evidence}")
        table.add_row(Text(verdict, STYLES[verdict]), words)
        for line in _some(finding.details) if finding.verdict == "FAIL" else ():
            table.add_row("", Text(f"· {line}", "red"))
    console.print(table)
    broken = f"{len(failed)} broken" if failed else "none broken"
    broken += f", {len(unshown)} not shown" if unshown else ""
    say(f"{len(findings)} promises and measurements, {broken}", console)
    if html:
        with writing(html):
            html.parent.mkdir(parents=True, exist_ok=True)
            about = f"Audit of scenario {chosen.name} at disclosure level {chosen.disclosure}."
            html.write_text(page(findings, about), encoding="utf-8")
        say(f"written: {html}", console)
    if as_json:
        lines = [
            {
                "promise": f.promise,
                "verdict": f.verdict.value,
                "evidence": f.evidence,
                "details": f.details,
            }
            for f in findings
        ]
        print(json.dumps({"scenario": chosen.name, "findings": lines}))  # noqa: T201
    if failed:
        raise typer.Exit(1)


def _some(details: tuple[str, ...]) -> Iterator[str]:
    """Yield the first of them, and how many there are besides."""
    yield from details[:SHOWN]
    if len(details) > SHOWN:
        yield f"and {len(details) - SHOWN:,} more (--html and --json have them all)"
