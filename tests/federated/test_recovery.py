"""Whoever is lost is started again, and the run ends with the hash of the undisturbed run."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from federated_support import (
    GONE_WITHIN,
    embedded_hash,
    make_scenario,
    processes_of,
    started,
    wait_until,
)
from support import ROOT

from fogveil.clock.pace import PaceOrder
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.testbed.launch.federated_run import FederatedRun, resume
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.resume import STANDING
from fogveil.testbed.records.training_log import LOG

TINY = ROOT / "scenarios/tiny.toml"
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
SPEED = 150.0
"""Slow enough for faults to fall into the run, whatever else the machine does."""


def run_with(folder: Path, faults, policy="jsq", *, scenario=None, **plan):
    """Run with faults (who, from which simulated time on, signal); return the content of run.json.

    They come one after the other, so that a slow machine does not put two into one moment.
    """
    scenario = scenario or make_scenario(horizon=700, disclosure="count")
    pending = list(faults)
    settings = {"speed": SPEED, **plan}
    with FederatedRun(scenario, Plan((policy,), recovers=True, **settings), folder, folder) as run:
        testbed = run.testbed

        def watch(_testbed, _name, report):
            if "joined" in report and "speed" not in plan:
                # The wall clock went on while somebody was away: the run does not hurry after it.
                testbed.pace(PaceOrder(SPEED, held=False))
            while pending and report.get("clock", {}).get("time", -1.0) >= pending[0][1]:
                who, _, number = pending.pop(0)
                process = testbed.broker if who == "broker" else testbed.participants[who].process
                os.kill(process.pid, number)

        (result,) = run.finish(watch)
    assert not pending, f"the run ended before {pending}"
    assert result["run_hash"] == embedded_hash(scenario, policy)
    return result


def lost(result) -> list[str]:
    return sorted(loss["who"] for loss in result["losses"])


def test_everybody_is_killed_in_one_run(tmp_path):
    everybody = ["fog-1", "agent", "sources", "cloud", "clock", "broker"]
    faults = [(who, 60.0 + 80 * place, KILL) for place, who in enumerate(everybody)]
    result = run_with(tmp_path, faults, broker="mosquitto")
    assert lost(result) == sorted(everybody)
    for loss in result["losses"]:
        assert loss["recovered_after_seconds"] > 0
        assert loss["simulated_time"] >= 60
    assert json.loads((tmp_path / "run.json").read_text())["losses"] == result["losses"]
    assert not (tmp_path / STANDING).exists(), "the run is over: there is nothing to resume"


def test_two_at_once_and_the_built_in_broker(tmp_path):
    faults = [("broker", 100.0, KILL), ("fog-2", 100.0, KILL), ("agent", 400.0, KILL)]
    faults += [("clock", 400.0, KILL)]
    result = run_with(tmp_path, faults, broker="builtin")
    assert lost(result) == ["agent", "broker", "clock", "fog-2"]


def test_whoever_hangs_is_ended_and_started_again(tmp_path):
    scenario = make_scenario(horizon=1200, disclosure="count")
    faults = [("fog-2", 60.0, STOP), ("broker", 60.0, STOP)]
    result = run_with(tmp_path, faults, scenario=scenario, broker="mosquitto")
    assert {"fog-2", "broker"} <= set(lost(result))


def test_a_clock_that_hangs_is_ended_and_started_again(tmp_path):
    scenario = make_scenario(horizon=1200, disclosure="count")
    result = run_with(tmp_path, [("clock", 60.0, STOP)], scenario=scenario, broker="builtin")
    assert lost(result) == ["clock"]


def test_level_total_keeps_its_masks(tmp_path):
    """A share that is told once more is the same share: its keys are kept."""
    scenario = make_scenario(horizon=700, disclosure="total")
    policy = f"{Path(__file__).parent / 'own_policies.py'}:SeesTotal"
    faults = [("fog-2", 100.0, KILL), ("agent", 250.0, KILL), ("cloud", 400.0, KILL)]
    result = run_with(tmp_path, faults, policy, scenario=scenario)
    assert lost(result) == ["agent", "cloud", "fog-2"]
    assert not list(tmp_path.glob("participants/*/keys-*")), "keys outlive the run"


def test_level_full_tells_the_past_as_it_was(tmp_path):
    scenario = make_scenario(horizon=700)
    faults = [("agent", 100.0, KILL), ("fog-2", 250.0, KILL), ("agent", 400.0, KILL)]
    result = run_with(tmp_path, faults, "setr", scenario=scenario)
    assert lost(result) == ["agent", "agent", "fog-2"]


def test_windows_ahead_and_several_sources(tmp_path):
    policy = f"{Path(__file__).parent / 'own_policies.py'}:Ahead"
    faults = [("sources-2", 100.0, KILL), ("agent", 250.0, KILL), ("fog-3", 400.0, KILL)]
    result = run_with(tmp_path, faults, policy, source_processes=2, broker="builtin")
    assert lost(result) == ["agent", "fog-3", "sources-2"]


def test_several_episodes(tmp_path):
    scenario = make_scenario(horizon=250, disclosure="count")
    plan = Plan(("jsq", "random"), draws=(0, 1), recovers=True, speed=SPEED)
    kills = {0: "fog-1", 1: "agent", 2: "clock", 3: "sources"}
    with FederatedRun(scenario, plan, tmp_path, tmp_path) as run:

        def watch(testbed, _name, report):
            place = report.get("clock", {"episode": -1, "time": 0.0})
            if place["time"] > 80 and (who := kills.pop(place["episode"], None)):
                os.kill(testbed.participants[who].process.pid, KILL)

        results = run.finish(watch)
    assert not kills
    for (policy, draw), result in zip(plan.episodes, results, strict=True):
        drawn = scenario if draw == 0 else None
        if drawn:
            assert result["run_hash"] == embedded_hash(drawn, policy)
    undisturbed = replace(plan, recovers=False, speed=None)
    with FederatedRun(scenario, undisturbed, tmp_path / "calm", tmp_path / "calm") as run:
        calm = run.finish()
    assert [each["run_hash"] for each in results] == [each["run_hash"] for each in calm]


def test_who_keeps_dying_ends_the_run_with_its_last_words(tmp_path):
    scenario = make_scenario(horizon=10**5, disclosure="count")
    killed: set[int] = set()

    def watch(testbed, _name, _report):
        process = testbed.participants["fog-2"].process
        if process.pid not in killed:
            killed.add(process.pid)
            with suppress(ProcessLookupError):
                os.kill(process.pid, KILL)

    plan = Plan(("jsq",), recovers=True, speed=SPEED)
    named = pytest.raises(InfrastructureError, match=r"^fog-2 was lost at simulated time")
    with FederatedRun(scenario, plan, tmp_path, tmp_path) as run, named:
        run.finish(watch)
    assert len(killed) == 3
    assert (tmp_path / "participants/fog-1/journal-0000.csv").exists()
    assert "fog-2 was lost 3 times in 10 s" in (tmp_path / "testbed.log").read_text()


def test_a_policy_that_decides_otherwise_ends_the_run(tmp_path):
    policy = tmp_path / "fickle.py"
    policy.write_text(
        "import os\n"
        "from fogveil.agent.policy import Policy\n"
        "MOOD = os.urandom(1)[0]\n"
        "class Fickle(Policy):\n"
        "    def place(self, seen):\n"
        "        return (seen.job * MOOD) % 3\n"
    )
    scenario = make_scenario(horizon=10**5, disclosure="count")
    plan = Plan((f"{policy}:Fickle",), recovers=True, speed=SPEED, window=1)
    killed: set[int] = set()

    def watch(testbed, _name, report):
        agent = testbed.participants["agent"]
        # It may decide alike by chance: then it goes on, and is killed later once more.
        due = report.get("clock", {"time": 0.0})["time"] > 150 * (len(killed) + 1)
        if due and agent.state == "joined" and agent.process.pid not in killed:
            killed.add(agent.process.pid)
            with suppress(ProcessLookupError):
                os.kill(agent.process.pid, KILL)

    out = tmp_path / "out"
    said = pytest.raises(InfrastructureError, match="policy is not deterministic")
    with FederatedRun(scenario, plan, out, out) as run, said:
        run.finish(watch)


def test_a_run_whose_launcher_was_killed_is_resumed(tmp_path):
    out = tmp_path / "out"
    scenario = make_scenario(horizon=700, disclosure="count", seed=7)
    arguments = ("run", TINY, "--policy", "jsq", "--federated", "--horizon", 700, "--seed", 7)
    with started(*arguments, "--speed", SPEED, "--out", out) as process:
        decisions = out / "participants/agent/decisions-0000.csv"
        wait_until((out / STANDING).exists)
        wait_until(lambda: decisions.exists() and decisions.stat().st_size > 200)
        pids = processes_of(out / "testbed.log").values()
        process.kill()
        process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    (result,) = resume(out)
    assert result["run_hash"] == embedded_hash(scenario, "jsq")
    with pytest.raises(InputError, match="there is nothing to resume"):
        resume(out)
    with pytest.raises(InputError, match="no run to resume"):
        resume(tmp_path)
    (out / STANDING).write_text("{")
    with pytest.raises(InputError, match="was written by another version, or damaged"):
        resume(out)


@pytest.mark.slow
def test_a_training_goes_on_from_its_checkpoint(tmp_path):
    values = tmp_path / "short.toml"
    values.write_text("buffer_capacity = 3000\ntraining_steps = 3000\n")
    settings = ("--set", "horizon=1000", "--hyperparameters", values, "--federated", "--every", 1)
    arguments = ("train", TINY, "--agent", "parl", "--seed", 3, *settings)
    with started(*arguments, "--out", tmp_path / "calm") as process:
        assert process.wait(GONE_WITHIN) == 0
    with started(*arguments, "--out", tmp_path / "lost", TMPDIR=str(tmp_path)) as process:
        wait_until((tmp_path / "lost" / LOG).exists)
        (log,) = tmp_path.glob("fogveil-*/testbed.log")
        os.kill(processes_of(log)["agent"], KILL)
        _, error = process.communicate(timeout=GONE_WITHIN)
    assert process.returncode == 0, error
    assert "the agent was lost in training: it goes on from its last checkpoint" in error
    calm, disturbed = ((tmp_path / name / "agent.npz").read_bytes() for name in ("calm", "lost"))
    assert calm == disturbed
