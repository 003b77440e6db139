"""`fogveil audit`: its verdicts on a healthy testbed, its output, and its instruments."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import ROOT, SCENARIOS
from typer.testing import CliRunner

from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.core.version import VERSION
from fogveil.protocol.identity import AGENT
from fogveil.testbed.cli.app import app
from fogveil.testbed.launch.participant_config import Plan, Site
from fogveil.testbed.privacy.audit import procedure
from fogveil.testbed.privacy.audit.canaries import encodings, plant, planted_secrets, search
from fogveil.testbed.privacy.audit.count_check import check_counts, check_masks
from fogveil.testbed.privacy.audit.findings import Verdict, judge
from fogveil.testbed.privacy.audit.grpc_access_check import check_grpc_access
from fogveil.testbed.privacy.audit.process_check import check_process
from fogveil.testbed.privacy.audit.recording_check import check_canaries, check_wire
from fogveil.testbed.privacy.audit.schema_check import allowed_fields
from fogveil.testbed.privacy.audit.twins.check import sizes_are_public
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

FOGVEIL = Path(sys.executable).parent / "fogveil"


def test_the_audit_of_tiny_passes_and_writes_a_page(tmp_path):
    page = tmp_path / "audit.html"
    result = subprocess.run(
        [FOGVEIL, "audit", SCENARIOS / "tiny.toml", "--json", "--html", page, "--horizon", "600"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    findings = json.loads(result.stdout.splitlines()[-1])["findings"]
    twins = [f for f in findings if f["promise"].startswith("non-interference")]
    # What the broker, the sources and the Cloud get is not shown where sizes depend on secrets.
    assert [f["verdict"] for f in twins if f["verdict"] != "NOT SHOWN"] == ["PASS"] * (
        8 if sizes_are_public(build_world(load_scenario(SCENARIOS / "tiny.toml"))) else 5
    )
    verdicts = {
        finding["promise"].partition(":")[0]: finding["verdict"]
        for finding in findings
        if finding not in twins
    }
    checks = "schema refusals messages deliveries records connections certificates calls frames"
    checks += " packets secrets ports processes output handshakes freshness page"
    expected = dict.fromkeys(checks.split(), "PASS")
    # Without root all participants are one user.
    expected |= dict.fromkeys(("process", "files"), "PASS" if os.geteuid() == 0 else "NOT SHOWN")
    expected["timing"] = "MEASURED"
    assert verdicts == expected
    unexamined = json.loads(result.stdout.splitlines()[-1])["not_examined"]
    assert any(line.startswith("random values: ") for line in unexamined)
    assert "No promise is broken." in page.read_text()


def test_a_healthy_testbed_passes_what_sabotaged_ones_fail(run_testbed):
    run, grpc_access = run_testbed(before_agent=check_grpc_access)
    findings = [check_wire(run), check_canaries(run), check_counts(run), grpc_access]
    assert {finding.verdict for finding in findings} == {Verdict.PASS}, findings


def test_fresh_masks_pass(audited_run):
    run = audited_run("total", procedure.TOTAL_OBSERVER)
    assert check_masks(run).verdict is Verdict.PASS
    assert check_counts(run).verdict is Verdict.PASS


# --- NOT SHOWN -----------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", ["-1", "0", "nan"])
def test_a_wrong_horizon_is_refused(monkeypatch, horizon):
    monkeypatch.setattr(procedure, "run_audit", lambda *_: pytest.fail("the testbed was started"))
    command = ["audit", str(SCENARIOS / "tiny.toml"), f"--horizon={horizon}"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, InputError)
    assert "horizon: expected a " in str(result.exception)


@pytest.mark.parametrize(
    "event",
    [
        {"at": 90.0, "kind": "crash", "node": "fog-1", "back": 120.0},
        {"at": 90.0, "kind": "leave", "node": "fog-1"},
        {"at": 90.0, "kind": "move", "cluster": "cluster-1", "to": "fog-3"},
    ],
)
def test_events_that_the_audit_does_not_follow_are_refused(monkeypatch, event):
    monkeypatch.setattr(procedure, "plant", lambda *_: pytest.fail("the audit was begun"))
    speed = {"at": 100.0, "kind": "speed", "node": "fog-2", "factor": 2.0}
    scenario = load_scenario(SCENARIOS / "tiny.toml", {"events": [event, speed]})
    sentence = f"the audit does not follow events of kind {event['kind']}, only speed, rate, "
    with pytest.raises(InputError, match=sentence):
        procedure.run_audit(scenario, Plan(), print)


def test_a_policy_without_counts_shows_nothing_of_what_providers_send(audited_run):
    run = audited_run(policy="random")
    assert check_wire(run).verdict is Verdict.NOT_SHOWN
    assert check_canaries(run).verdict is Verdict.PASS
    assert check_counts(run).verdict is Verdict.NOT_SHOWN


def test_at_level_none_the_absence_of_messages_is_a_pass(audited_run):
    run = audited_run("none", "round-robin")
    wire = check_wire(run)
    assert wire.verdict is Verdict.PASS
    assert re.fullmatch(
        r"no message came from a provider to the agent at [1-9]\d* decisions", wire.evidence
    )
    assert check_canaries(run).verdict is Verdict.PASS
    assert check_counts(run).verdict is Verdict.NOT_SHOWN


def test_a_check_that_examined_nothing_is_no_pass():
    assert judge("a promise", "0 of 0", [], 0, "no message").verdict is Verdict.NOT_SHOWN
    assert judge("a promise", "0 of 0", [], 0, "no message").evidence == "no message"
    assert judge("a promise", "1 of 1", [], 1).verdict is Verdict.PASS
    assert judge("a promise", "0 of 0", ["a fault"], 0).verdict is Verdict.FAIL


def test_without_separate_users_the_process_check_is_not_shown():
    shared = SimpleNamespace(split=SimpleNamespace(site=Site()))
    assert check_process(shared, None).verdict is Verdict.NOT_SHOWN


def test_the_console_shows_the_first_faults_and_the_page_all(monkeypatch, tmp_path):
    faults = [f"fault number {number}" for number in range(1, 101)]
    monkeypatch.setattr(procedure, "run_audit", lambda *_: [judge("a promise", "", faults, 1)])
    command = ["audit", str(SCENARIOS / "tiny.toml"), "--html", str(tmp_path / "page.html")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "· fault number 8" in lines
    assert "· fault number 9" not in lines
    assert "and 92 more" in result.stdout
    page = (tmp_path / "page.html").read_text()
    assert "fault number 100" in page
    for fact in (
        "tiny",
        "count",
        "veil",
        "128 bits drawn",
        f"{datetime.now(UTC):%Y-%m-%d}",
        VERSION,
    ):
        assert f"<td>{fact}" in page
    assert "The counts themselves leak speeds" in page
    last_line = CliRunner().invoke(app, [*command, "--json"]).stdout.splitlines()[-1]
    assert json.loads(last_line)["findings"][0]["details"] == faults


# --- instruments ---------------------------------------------------------------------------------


def test_the_list_of_allowed_fields_has_every_level_that_discloses():
    assert allowed_fields(Level.COUNT) == {"WatchResponse.counts=1:repeated-uint32"}
    assert allowed_fields(Level.NONE) == set()
    for level in (Level.TOTAL, Level.FULL):
        assert allowed_fields(level)


def test_a_canary_is_found_in_every_encoding():
    speed = 377_918_273.0
    for encoding, pattern in encodings(speed).items():
        found = list(search([("the speed", speed)], [("a file", b"xx" + pattern + b"yy")]))
        assert f"the speed found as {encoding} in a file" in found
    assert not list(search([("the speed", speed)], [("a file", b"377 918 273")]))


def test_planted_secrets_are_permuted_and_distinct():
    scenario = load_scenario(SCENARIOS / "stress.toml")
    world, other = build_world(plant(scenario, 1)), build_world(plant(scenario, 2))
    speeds = [fog.ipt for fog in world.fogs]
    assert len({*speeds}) == len(speeds)
    assert speeds != sorted(speeds)
    assert speeds != [fog.ipt for fog in other.fogs]
    assert world.scenario.seed.bit_length() > 100
    original = build_world(scenario)
    times = sorted(work / fog.ipt for fog in original.fogs for work in fog.instructions)
    planted = sorted(work / fog.ipt for fog in world.fogs for work in fog.instructions)
    assert times == pytest.approx(planted, rel=0.01)


def test_a_number_that_several_providers_share_is_one_canary():
    world = build_world(plant(load_scenario(SCENARIOS / "stress.toml"), 1))
    planted = planted_secrets(world)
    assert len({value for _, value in planted}) == len(planted)
    # Ten nodes and the Cloud: a speed and a memory each, and one seed of them all; two more seeds.
    assert len(planted) == 11 * 2 + 1 + 2
    assert ("seed of fog-1 and 10 others", world.cloud_provider.seed) in planted
    assert len(planted_secrets(world, ("ipt",))) == len(planted) - 11


def test_at_level_full_the_seeds_remain_secret(audited_run):
    run = audited_run("full", "setr")
    assert check_wire(run).verdict is Verdict.PASS
    canaries = check_canaries(run)
    assert canaries.verdict is Verdict.PASS, canaries
    assert canaries.evidence.startswith("3 planted numbers")
    assert canaries.evidence.endswith("not searched for: ipt and ram, which level full discloses")
    seeds = {
        "seed of fog-1 and 3 others": run.world.fogs[0].seed,
        "seed of the sources": run.world.sources.seed,
        "seed of the scenario": run.world.scenario.seed,
    }
    for name, seed in seeds.items():
        (run.split.folder_of(AGENT) / "note.txt").write_text(f"it is {seed}")
        canaries = check_canaries(run)
        assert canaries.verdict is Verdict.FAIL
        assert f"{name} found as text in its file note.txt" in canaries.details
