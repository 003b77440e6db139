"""A run in containers is the embedded run; what it makes it removes, whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import ROOT, SCENARIOS

from testbed.containers.engine import FOLDER_LABEL, LABEL
from testbed.run import run_embedded
from testbed.scenario import load_scenario

TINY = SCENARIOS / "tiny.toml"
ENDS_WITHIN = 90.0
"""It takes about 10 seconds, on a machine with nothing else to do; more than this is a hang."""


def fogveil(*words: str | Path, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "testbed.cli", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        **more,
    )


@pytest.fixture(scope="session")
def built(surroundings):
    """The images, built before anything is timed."""
    done = fogveil("run", TINY, "--policy", "random", "--docker", "--horizon", "50")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("policy", "more"),
    [("jsq", []), ("veil", ["--broker", "builtin"]), ("random", ["--insecure"])],
)
def test_containers_give_the_run_hash_of_the_embedded_engine(client, built, policy, more, tmp_path):
    done = fogveil("run", TINY, "--policy", policy, "--docker", "--json", *more, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["run_hash"] == run_embedded(load_scenario(TINY), policy)["run_hash"]
    assert told["mode"] == "docker"
    assert json.loads((tmp_path / "run.json").read_text())["run_hash"] == told["run_hash"]


def test_secure_totals_work_in_containers(client, built, tmp_path):
    looker = f"{ROOT / 'testbed' / 'audit' / 'looker.py'}:TotalLooker"
    words = ("run", TINY, "--policy", looker, "--disclosure", "total")
    apart = fogveil(*words, "--docker", "--json", "--out", tmp_path)
    together = fogveil(*words, "--json")
    assert apart.returncode == together.returncode == 0, apart.stderr + together.stderr
    one, other = (json.loads(done.stdout.splitlines()[-1]) for done in (apart, together))
    assert one["run_hash"] == other["run_hash"]


def test_what_crossed_can_be_inspected(client, built, tmp_path):
    done = fogveil("up", TINY, "--policy", "jsq", "--docker", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    shown = fogveil("inspect", tmp_path, "--summary")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "fog-3" in shown.stdout


def test_leakage_is_measured_on_containers(client, built, tmp_path):
    words = ("leakage", TINY, "--decisions", "64", "--permutations", "1", "--json")
    apart = fogveil(*words, "--docker", "--out", tmp_path / "a")
    together = fogveil(*words, "--out", tmp_path / "b")
    assert apart.returncode == together.returncode == 0, apart.stderr + together.stderr
    one, other = (json.loads(done.stdout.splitlines()[-1]) for done in (apart, together))
    assert (one.pop("mode"), other.pop("mode")) == ("docker", "embedded")
    assert one == other


class Up:
    """A testbed at work for long enough to be disturbed."""

    def __init__(self, client, folder: Path) -> None:
        self.client, self.folder = client, folder
        words = ["up", TINY, "--policy", "jsq", "--docker", "--speed", "20", "--out", folder]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testbed.cli", *map(str, words)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.record = folder / "participants" / "agent" / "decisions-0000.csv"

    def wait_until_busy(self) -> None:
        deadline = time.monotonic() + 240
        while not self.record.exists() or self.record.read_text().count("\n") < 5:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "no decision was taken"
            time.sleep(0.1)

    def container(self, name: str):
        mine = {"label": [f"{FOLDER_LABEL}={self.folder}", f"org.fogveil.participant={name}"]}
        (found,) = self.client.containers.list(filters=mine)
        return found

    def end(self) -> tuple[int, str, float]:
        begin = time.monotonic()
        _, said = self.process.communicate(timeout=120)
        return self.process.returncode, said, time.monotonic() - begin

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate(timeout=60)


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


DEEDS = {
    "pause": lambda container: container.pause(),
    "kill": lambda container: container.kill(),
    "disconnect": disconnect,
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_loss_is_noticed_named_and_ends_the_run(client, built, tmp_path, deed):
    """Side by side, for most of the time is waiting."""
    ups = {name: Up(client, tmp_path / name) for name in ("fog-2", "broker", "agent")}
    try:
        for name, up in ups.items():
            up.wait_until_busy()
            DEEDS[deed](up.container(name))
        for name, up in ups.items():
            code, said, seconds = up.end()
            assert code == 3, (name, said)
            assert f"{name} was lost at simulated time" in said
            assert seconds < ENDS_WITHIN
            assert up.record.read_text().count("\n") >= 5
    finally:
        for up in ups.values():
            up.close()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_an_interrupted_testbed_leaves_nothing(up, number, code):
    os.kill(up.process.pid, number)
    assert up.end()[0] == code


def test_down_removes_what_a_crash_left_and_spares_who_is_at_work(client, up, tmp_path):
    mine = {"label": LABEL}
    spared = fogveil("down")
    assert spared.returncode == 0, spared.stderr
    assert "left alone" in spared.stdout
    assert client.containers.list(filters=mine)
    os.kill(up.process.pid, signal.SIGKILL)
    up.end()
    deadline = time.monotonic() + 30  # everybody but the broker notices that the launcher is gone
    while len(client.containers.list(filters=mine)) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert client.networks.list(filters=mine)
    done = fogveil("down")
    assert done.returncode == 0, done.stderr
    assert "removed what was left" in done.stdout
    assert not client.containers.list(all=True, filters=mine)
    assert not client.networks.list(filters=mine)
    assert up.record.exists()
    assert "nothing was left behind" in fogveil("down").stdout


def test_without_an_engine_there_is_a_sentence():
    environment = {**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    done = fogveil("run", TINY, "--policy", "jsq", "--docker", env=environment)
    assert done.returncode == 3
    assert done.stderr.startswith("fogveil: Docker cannot be used: is the engine running")
    assert "Traceback" not in done.stderr


def test_a_broker_elsewhere_is_refused():
    done = fogveil("run", TINY, "--policy", "jsq", "--docker", "--broker", "mqtt://example.org")
    assert done.returncode == 2
    assert "no way out" in done.stderr
