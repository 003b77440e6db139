"""`fogveil audit`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fogveil.agent.policies import label_of
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.core.version import VERSION
from fogveil.testbed.cli.options import (
    Broker,
    Disclosure,
    Docker,
    Override,
    ScenarioFile,
    collect_overrides,
    err,
    federated_plan,
    load,
    out,
    print_line,
)
from fogveil.testbed.cli.progress import AuditSteps
from fogveil.testbed.records.output import reporting_write_errors, write_json
from fogveil.testbed.records.provenance import provenance

STYLES = {"PASS": "green", "FAIL": "bold red", "NOT SHOWN": "yellow", "MEASURED": "cyan"}
FAULTS_SHOWN = 8
"""Faults of a promise that the console shows."""


def audit(
    scenario: ScenarioFile,
    policy: Annotated[
        str | None,
        typer.Option(help="Policy of the audited run. [default: one that observes all it may]"),
    ] = None,
    horizon: Annotated[
        float | None, typer.Option(help="Simulated time to audit. [default: about 300 decisions]")
    ] = None,
    disclosure: Disclosure = None,
    override: Override = None,
    broker: Broker = "auto",
    docker: Docker = False,
    challenge: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Audit a copy of the participants' code, changed by sabotage(product) in FILE.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Audit every disclosure level, two episodes each, the full horizon."
        ),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the findings as a web page.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Keep the findings here, for `fogveil report`."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Attack a testbed with planted secrets, and give a verdict on every privacy promise.

    Each verdict comes with its evidence. NOT SHOWN means that the promise could not be tested here,
    which is not a pass. MEASURED is a measurement of something that is not promised. The exit code
    is 1 if a promise fails, and 3 if none does but the testbed ended, or a recording of it, before
    everything was examined. With --challenge the last line says which checks caught the change.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is imported
    from fogveil.testbed.page.audit_page import AUDIT, audit_sections
    from fogveil.testbed.page.document import Document
    from fogveil.testbed.page.files import write_page
    from fogveil.testbed.privacy.audit import procedure
    from fogveil.testbed.privacy.audit.challenge import apply_challenge, caught_by
    from fogveil.testbed.privacy.audit.channels import not_examined

    chosen = load(
        scenario, collect_overrides(override, disclosure=disclosure, horizon=horizon), None
    )
    if horizon is None and not everything:
        horizon = procedure.horizon_for(chosen, procedure.DECISIONS)
        chosen = chosen.model_copy(update={"horizon": horizon})
    plan = federated_plan(
        federated=True, broker=broker, window=None, source_processes=1, docker=docker
    )
    if policy:
        plan = replace(plan, policies=(policy,))
    if challenge and docker:
        raise InputError("--challenge is for processes, not for containers: leave --docker out")
    challenged: dict[str, Any] | None = None
    run = procedure.run_all if everything else procedure.run_audit
    with ExitStack() as stack:
        if challenge:
            applied = stack.enter_context(apply_challenge(challenge))
            print_line(f"… changed for the challenge: {', '.join(applied.changed)}", err)
            plan = replace(plan, product=applied.product)
        try:
            steps = AuditSteps(len(procedure.POLICIES) if everything else 1)
            findings = run(chosen, plan, lambda step: print_line(f"… {steps.begin(step)}", err))
        except InfrastructureError as error:
            if challenge is None:
                raise
            if as_json:
                failed_run = {"caught_by": [], "failed": str(error)}
                print(json.dumps({"scenario": chosen.name, "challenge": failed_run}))  # noqa: T201
            raise InfrastructureError(
                f"the challenge was neither caught nor missed, because the run failed: {error}"
            ) from error
    if challenge:
        challenged = {"caught_by": caught_by(findings), "failed": None}
    failed = [finding for finding in findings if finding.verdict == "FAIL"]
    not_shown = [finding for finding in findings if finding.verdict == "NOT SHOWN"]
    console = err if as_json else out
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        verdict = finding.verdict.value
        text = Text.assemble((finding.promise, "bold"), f"\n{finding.evidence}")
        table.add_row(Text(verdict, STYLES[verdict]), text)
        for line in _first_faults(finding.details) if finding.verdict == "FAIL" else ():
            table.add_row("", Text(f"· {line}", "red"))
    console.print(table)
    broken = f"{len(failed)} broken" if failed else "none broken"
    broken += f", {len(not_shown)} not shown" if not_shown else ""
    print_line(f"{len(findings)} promises and measurements, {broken}", console)
    unexamined = list(not_examined(findings))
    print_line("not examined:", console)
    for line in unexamined:
        print_line(f"  {line}", console)
    levels = list(procedure.POLICIES) if everything else [chosen.disclosure]
    used = [policy or procedure.POLICIES[level] for level in levels]
    kept: dict[str, Any] = {
        "scenario": chosen.name,
        "levels": [str(level) for level in levels],
        "facts": {
            "scenario": chosen.name,
            "disclosure level": ", ".join(levels),
            "policy": ", ".join(dict.fromkeys(map(label_of, used))),
            "seed": "128 bits drawn for this audit, as were the planted secrets; not kept",
            "horizon": f"{chosen.horizon:g}",
            "participants": "containers" if docker else "processes",
            "fogveil": VERSION,
        },
        "findings": [asdict(finding) for finding in findings],
        "not_examined": unexamined,
        "provenance": provenance(),
    }
    if folder:
        with reporting_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / AUDIT, kept)
        print_line(f"written: {folder / AUDIT}", console)
    if html:
        write_page(Document("fogveil audit", audit_sections(kept)), html)
        print_line(f"written: {html}", console)
    if challenged:
        print_line(_challenge_line(challenged["caught_by"]), console)
    if as_json:
        result = {key: kept[key] for key in ("scenario", "findings", "not_examined")}
        if challenged:
            result["challenge"] = challenged
        print(json.dumps(result))  # noqa: T201
    if failed:
        raise typer.Exit(1)


def _challenge_line(checks: list[str]) -> str:
    """Return the outcome of a challenge in one line."""
    if not checks:
        return "the audit did not notice the challenge: please report it"
    number = f"{len(checks)} check{'s' if len(checks) > 1 else ''}"
    return f"the challenge was caught by {', '.join(checks)} ({number})"


def _first_faults(faults: tuple[str, ...]) -> Iterator[str]:
    """Yield the first faults, and how many there are besides."""
    yield from faults[:FAULTS_SHOWN]
    if len(faults) > FAULTS_SHOWN:
        yield f"and {len(faults) - FAULTS_SHOWN:,} more (--html and --json list all)"
