"""A run in containers is the embedded run; what it creates it removes, whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from docker_support import TINY, Up, fogveil
from support import ROOT

from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.launch.docker.engine_client import RUN_LABEL
from fogveil.testbed.privacy.audit.procedure import TOTAL_OBSERVER
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.load import parse_override

ENDS_WITHIN = 90.0
"""It takes about 10 seconds, on a machine with nothing else to do; more than this is a hang."""


@pytest.mark.parametrize(
    ("policy", "options"),
    [("jsq", []), ("veil", ["--broker", "builtin"]), ("random", ["--insecure"])],
)
def test_containers_give_the_run_hash_of_the_embedded_engine(
    client, built, policy, options, tmp_path
):
    words = ("run", TINY, "--policy", policy, "--docker", "--json", "--seed", "1")
    done = fogveil(*words, *options, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["run_hash"] == run_embedded(load_scenario(TINY), policy)["run_hash"]
    assert result["mode"] == "docker"
    assert json.loads((tmp_path / "run.json").read_text())["run_hash"] == result["run_hash"]


def test_a_crash_ends_a_container_and_another_takes_its_place(client, built, tmp_path):
    crashes = (
        '{at=500.0, kind="crash", node="fog-1", back=700.0},'
        '{at=900.0, kind="crash", node="fog-2", back=1100.0, jobs="lost", notice=30.0}'
    )
    words = ("run", TINY, "--policy", "jsq", "--docker", "--json", "--seed", "1")
    done = fogveil(*words, "--set", f"events=[{crashes}]", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    events = parse_override(f"events=[{crashes}]")[1]
    expected = run_embedded(load_scenario(TINY, {"events": events}), "jsq")
    assert result["run_hash"] == expected["run_hash"]
    assert (tmp_path / "testbed.log").read_text().count("it crashes in the scenario") == 2


def test_a_jobs_size_is_the_same_in_containers(client, built, tmp_path):
    service = {"distribution": "pareto", "tail": 1.5}
    words = ("run", TINY, "--policy", "jsq", "--json", "--seed", "1")
    sized = ("--set", 'service={distribution="pareto", tail=1.5}')
    done = fogveil(*words, *sized, "--docker", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    expected = run_embedded(load_scenario(TINY, {"service": service}), "jsq")
    assert result["run_hash"] == expected["run_hash"]


def test_secure_totals_work_in_containers(client, built, tmp_path):
    words = (
        "run",
        TINY,
        "--policy",
        TOTAL_OBSERVER,
        "--disclosure",
        "total",
        "--json",
        "--seed",
        "1",
    )
    containers = fogveil(*words, "--docker", "--out", tmp_path)
    embedded = fogveil(*words)
    assert containers.returncode == embedded.returncode == 0, containers.stderr + embedded.stderr
    one, other = (json.loads(done.stdout.splitlines()[-1]) for done in (containers, embedded))
    assert one["run_hash"] == other["run_hash"]


def test_what_crossed_can_be_inspected(client, built, tmp_path):
    done = fogveil("up", TINY, "--policy", "jsq", "--docker", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    shown = fogveil("inspect", tmp_path, "--summary")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "fog-3" in shown.stdout


def test_leakage_is_measured_on_containers(client, built, tmp_path):
    words = ("leakage", TINY, "--decisions", "64", "--permutations", "1", "--json", "--seed", "1")
    containers = fogveil(*words, "--docker", "--out", tmp_path / "a")
    embedded = fogveil(*words, "--out", tmp_path / "b")
    assert containers.returncode == embedded.returncode == 0, containers.stderr + embedded.stderr
    one, other = (json.loads(done.stdout.splitlines()[-1]) for done in (containers, embedded))
    assert (one.pop("mode"), other.pop("mode")) == ("docker", "embedded")
    assert one == other


def test_an_installed_wheel_runs_containers_of_the_same_images(client, built, installed, tmp_path):
    """Its files are those of the checkout, so the images need not be built again."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    words = ("run", "tiny", "--policy", "jsq", "--docker", "--json", "--seed", "1")
    done = fogveil(*words, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "building the image" not in done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["run_hash"] == run_embedded(load_scenario(TINY), "jsq")["run_hash"]


@pytest.fixture
def up(client, built, tmp_path):
    testbed = Up(client, tmp_path / "up")
    try:
        testbed.wait_until_busy()
        yield testbed
    finally:
        testbed.close()


def disconnect(container) -> None:
    container.reload()
    for name in container.attrs["NetworkSettings"]["Networks"]:
        container.client.networks.get(name).disconnect(container)


FAULTS = {
    "pause": lambda container: container.pause(),
    "kill": lambda container: container.kill(),
    "disconnect": disconnect,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_loss_is_noticed_named_and_ends_the_run(client, built, tmp_path, fault):
    """Side by side, for most of the time is waiting."""
    names = ("fog-2", "broker", "agent")
    ups = {name: Up(client, tmp_path / name, "--on-loss", "end") for name in names}
    try:
        for name, up in ups.items():
            up.wait_until_busy()
            FAULTS[fault](up.container(name))
        for name, up in ups.items():
            code, error, seconds = up.end()
            assert code == 3, (name, error)
            assert f"{name} was lost at simulated time" in error
            assert seconds < ENDS_WITHIN
            assert up.record.read_text().count("\n") >= 5
    finally:
        for up in ups.values():
            up.close()


def test_whoever_is_lost_is_replaced_by_another_container(client, built, tmp_path):
    """One after the other: each is back before the next fault comes."""
    faults = {"fog-2": "kill", "agent": "kill", "broker": "kill", "clock": "kill"}
    faults |= {"cloud": "pause", "fog-1": "disconnect"}
    up = Up(client, tmp_path, "--seed", "1", speed=15)
    try:
        up.wait_until_busy()
        for name, fault in faults.items():
            before = up.container(name).id
            FAULTS[fault](up.container(name))
            deadline = time.monotonic() + ENDS_WITHIN
            while not up.is_back(name):
                assert up.process.poll() is None, up.process.communicate()
                assert time.monotonic() < deadline, f"{name} was not replaced"
                time.sleep(0.1)
            assert up.container(name).id != before
        code, error, _ = up.end()
        assert code == 0, error
    finally:
        up.close()
    result = json.loads((tmp_path / "run.json").read_text())
    assert set(faults) <= {loss["who"] for loss in result["losses"]}
    calm = run_embedded(load_scenario(TINY, {"seed": 1}), "jsq")
    assert result["run_hash"] == calm["run_hash"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_an_interrupted_testbed_leaves_nothing(up, number, code):
    up.send(number)
    assert up.end()[0] == code


def test_down_removes_what_a_crash_left_and_spares_what_is_running(client, up, tmp_path):
    labelled = {"label": RUN_LABEL}
    spared = fogveil("down")
    assert spared.returncode == 0, spared.stderr
    assert "left alone" in spared.stdout
    assert client.containers.list(filters=labelled)
    up.send(signal.SIGKILL)
    up.end()
    deadline = time.monotonic() + 30  # everybody but the broker notices that the launcher is gone
    while len(client.containers.list(filters=labelled)) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert client.networks.list(filters=labelled)
    done = fogveil("down")
    assert done.returncode == 0, done.stderr
    assert "removed what was left" in done.stdout
    assert not client.containers.list(all=True, filters=labelled)
    assert not client.networks.list(filters=labelled)
    assert up.record.exists()
    assert "nothing was left behind" in fogveil("down").stdout


def test_without_an_engine_there_is_a_sentence():
    environment = {**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    done = fogveil("run", TINY, "--policy", "jsq", "--docker", env=environment)
    assert done.returncode == 3
    assert "\nfogveil: Docker cannot be used: is the engine running" in f"\n{done.stderr}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("broker", "sentence"), [("mqtt://example.org", "no way out"), ("hivemq", "expected auto")]
)
def test_a_broker_that_cannot_be_a_container_is_refused(broker, sentence):
    done = fogveil("run", TINY, "--policy", "jsq", "--docker", "--broker", broker, cwd=ROOT)
    assert done.returncode == 2
    assert sentence in done.stderr
