"""The audit catches every breakage of the catalogue by the check that should, and no control."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from catalogue import BREAKAGES, CONTROLS, Breakage
from support import SCENARIOS

from fogveil.core.errors import InfrastructureError
from fogveil.protocol.namespaces import available_namespaces
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.privacy.audit import procedure
from fogveil.testbed.privacy.audit.canaries import plant
from fogveil.testbed.privacy.audit.challenge import (
    apply_challenge,
    caught_by,
    changed_files,
    copy_product,
)
from fogveil.testbed.privacy.audit.freshness_check import DrawnValues
from fogveil.testbed.privacy.audit.mqtt_access_check import check_mqtt_access
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

FEWEST_BREAKAGES, FEWEST_CONTROLS = 100, 5
HORIZON = 1900
"""More than a hundred decisions."""
RUNS = 4
"""Testbeds that `make test` starts; in each run several breakages are to be caught at once."""

TRIES = 3
"""Times that a group is audited if its testbed ends early, as on a very busy machine."""

RUN = "run"
"""Stands for a check where the run itself ends, because a participant names the culprit."""

Touched = dict[str, tuple[str, ...]]
"""The files of the product that each entry of the catalogue changes, by its name."""


@pytest.fixture(scope="module")
def touched(tmp_path_factory) -> Touched:
    whole = tmp_path_factory.mktemp("whole")
    copy_product(whole)
    changes = {}
    for entry in (*BREAKAGES, *CONTROLS):
        product = whole.with_name(entry.name)
        shutil.copytree(whole, product)
        entry.sabotage(product)
        changes[entry.name] = changed_files(product)
        for name in changes[entry.name]:
            compile((product / name).read_bytes(), name, "exec")
        shutil.rmtree(product)
    return changes


def _report(_step: str) -> None:
    pass


def audit(entries: Iterable[Breakage], folder: Path) -> list[str]:
    """Apply breakages of one kind of run together, audit it, and return the checks that fail.

    Where the run itself ends that is `RUN`, and the sentence with which it ends: nothing else was
    examined then.
    """
    first, *others = entries
    folder.mkdir(exist_ok=True)
    file = folder / "challenge.py"
    sources = [entry.file.read_text() for entry in (first, *others)]
    file.write_text(
        f"def sabotage(product):\n    for source in {sources!r}:\n"
        "        names = {}\n        exec(source, names)\n        names['sabotage'](product)\n"
    )
    overrides = {"horizon": HORIZON, "disclosure": first.level}
    world = build_world(plant(load_scenario(SCENARIOS / "tiny.toml", overrides)))
    with apply_challenge(file) as challenge:
        plan = Plan(
            policies=(procedure.POLICIES[first.level],),
            draws=tuple(range(first.episodes)),
            broker=first.broker,
            product=challenge.product,
        )
        findings, drawn = [], DrawnValues()
        try:
            for run in range(first.runs):
                place = folder / f"run-{run}"
                findings += procedure.audit_processes(world, plan, place, _report, drawn)
        except InfrastructureError as error:
            return [RUN, str(error)]
        findings.append(drawn.finding())
        if first.broker == "builtin":
            findings.append(check_mqtt_access("builtin", product=challenge.product))
    early = [each.evidence for each in findings if each.promise == procedure.ENDED_EARLY]
    return [RUN, *early] if early and not first.ends_run else caught_by(findings)


def test_every_entry_says_what_it_is_and_changes_the_product(touched: Touched):
    assert len(BREAKAGES) >= FEWEST_BREAKAGES
    assert len(CONTROLS) >= FEWEST_CONTROLS
    assert all(entry.about and entry.caught_by for entry in BREAKAGES)
    assert all(entry.names for entry in BREAKAGES if entry.caught_by == RUN)
    assert not any(entry.caught_by for entry in CONTROLS)
    assert all(touched.values()), [name for name, files in touched.items() if not files]


def groups(touched: Touched) -> Iterator[list[Breakage]]:
    """Yield breakages to audit together: of one kind of run, with checks of their own.

    Two that replace text in one file exclude each other. Whatever else a breakage sets off stands
    in its `ALSO`, so that no check fails for another breakage than its own.
    """
    # Many breakages set off `secrets`, and one that ends the run hides the others: shown alone.
    waiting = [
        entry
        for entry in BREAKAGES
        if not (entry.confined or entry.ends_run or entry.caught_by in ("secrets", RUN))
    ]
    while waiting:
        group: list[Breakage] = []
        taken: set[str] = set()
        for entry in waiting:
            fits = not group or _kind(entry) == _kind(group[0])
            takes = {*entry.checks, *(touched[entry.name] if entry.replaces else ())}
            if fits and taken.isdisjoint(takes):
                group.append(entry)
                taken |= takes
        waiting = [entry for entry in waiting if entry not in group]
        yield group


def _kind(entry: Breakage) -> tuple[str, str, int, int]:
    return entry.level, entry.broker, entry.episodes, entry.runs


def test_several_breakages_at_once_are_all_caught(touched: Touched, tmp_path):
    largest = sorted(groups(touched), key=len, reverse=True)[:RUNS]
    for number, group in enumerate(largest):
        for attempt in range(TRIES):
            caught = audit(group, tmp_path / f"{number}-{attempt}")
            if RUN not in caught:
                break
        assert RUN not in caught, f"not examined, because the testbed ended: {caught}"
        missed = [entry.name for entry in group if entry.caught_by not in caught]
        assert not missed, f"{missed} of {[entry.name for entry in group]}, caught by {caught}"


def test_what_was_found_before_the_run_ended_is_told(tmp_path):
    """The auditor's own attempt succeeds, and the run is over by it."""
    [entry] = [entry for entry in BREAKAGES if entry.ends_run]
    assert audit([entry], tmp_path) == [entry.caught_by]


def test_all_controls_together_pass(tmp_path):
    assert audit(CONTROLS, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("entry", BREAKAGES, ids=lambda entry: entry.name)
def test_every_breakage_is_caught_by_its_check(entry: Breakage, tmp_path):
    caught = audit([entry], tmp_path)
    if entry.confined and available_namespaces() != "none":
        assert caught == []  # what it leaves is gone with its namespaces
    else:
        assert entry.caught_by in caught
        assert entry.names in " ".join(caught)


@pytest.mark.slow
@pytest.mark.parametrize("entry", CONTROLS, ids=lambda entry: entry.name)
def test_every_control_passes(entry: Breakage, tmp_path):
    assert audit([entry], tmp_path) == []
