"""`fogveil chaos`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import shlex

import pytest
from chaos_support import plan_of
from typer.testing import CliRunner

from fogveil.clock.session import Session
from fogveil.core.errors import InputError
from fogveil.protocol.identity import AGENT
from fogveil.testbed.chaos.faults import Fault
from fogveil.testbed.cli.app import app

WORDS = ("chaos", "tiny", "--simulated", "--set", "horizon=400", "--horizon", "400")


def invoke(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["fogveil", *words])
    return CliRunner().invoke(app, words)


def test_runs_that_end_as_if_undisturbed(monkeypatch):
    done = invoke(monkeypatch, *WORDS, "--seed", "7", "--runs", "4", "--json", "--quiet")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["runs"], result["passed"], result["failures"]) == (4, 4, [])


def test_a_failure_prints_the_smallest_plan_and_the_command_that_repeats_it(monkeypatch):
    monkeypatch.setattr(Session, "_ask_again", lambda *_: None)
    guilty = Fault(0.4, "drop", AGENT, number=1)
    plan = plan_of(Fault(0.2, "double", AGENT, number=2), guilty)
    done = invoke(monkeypatch, *WORDS, "--plan", plan.text())
    assert done.exit_code == 1
    line = next(line for line in done.stdout.splitlines() if "repeat it: " in line)
    command = shlex.split(line.partition("repeat it: ")[2])
    assert command == ["fogveil", *WORDS, "--plan", plan_of(guilty).text()]
    again = invoke(monkeypatch, *command[1:])
    assert again.exit_code == 1
    assert "seed 1 FAILED: " in again.stdout
    assert "waited 180 s" in again.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--docker",), "exclude each other"),
        (("--broker", "builtin"), "a broker of its own"),
        (("--plan", "{}"), "no plan of faults"),
        (("--policy", "setr"), "needs disclosure level"),
    ],
)
def test_wrong_input(monkeypatch, words, reason):
    refused = invoke(monkeypatch, *WORDS, *words)
    assert isinstance(refused.exception, InputError)
    assert reason in str(refused.exception)
