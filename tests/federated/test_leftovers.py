"""A testbed's folder before and after a run, and what ends a command early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from federated_support import Parts, Up, ending, fogveil, wait_until
from support import ROOT, SCENARIOS

from fogveil.broker import tls
from fogveil.broker.address import Address
from fogveil.broker.healthcheck import check_reachable
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import broker_identity

TINY = SCENARIOS / "tiny.toml"


def up(*arguments, **options):
    return fogveil("up", TINY, "--policy", "jsq", *arguments, **options)


def test_a_run_that_fails_is_not_mixed_with_the_results_of_the_one_before(tmp_path):
    out = tmp_path / "out"
    assert up("--horizon", 900, "--broker", "builtin", "--out", out).returncode == 0
    assert (out / "run.json").exists()
    testbed = Up(tmp_path, "--broker", "builtin")
    with ending(testbed):
        assert testbed.out == out
        wait_until(lambda: not (out / "run.json").exists())
        testbed.wait_until_busy()
        testbed.send("fog-1", signal.SIGKILL)
        assert testbed.wait_until_gone()[0] == 3
    assert not [*out.glob("*.parquet"), *out.glob("run.json")]


def test_an_embedded_run_does_not_write_where_a_testbed_is_at_work(tmp_path):
    testbed = Up(tmp_path, "--broker", "builtin")
    with ending(testbed):
        testbed.wait_until_busy()
        done = fogveil("run", TINY, "--policy", "jsq", "--out", testbed.out)
        assert done.returncode == 2
        assert "a testbed is running in this folder" in done.stderr


@pytest.mark.parametrize(
    "wrong", [("--speed", 0), ("--broker", "foo"), ("--broker", "mqtt://"), ("--window", 8)]
)
def test_what_is_refused_leaves_a_folder_as_it_was(tmp_path, wrong):
    folder = tmp_path / "mine"
    folder.mkdir()
    done = up(*wrong, "--out", folder)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert list(folder.iterdir()) == []


def test_a_second_connection_with_an_identity_is_suspected(tmp_path):
    testbed = Up(tmp_path, "--broker", "mosquitto")
    with ending(testbed):
        testbed.wait_until_busy()
        stolen = Credentials(testbed.out / "participants" / "agent" / "identity")
        address = Address.parse(testbed.log.partition("mosquitto at ")[2].split()[0])
        run = json.loads((stolen.folder.parent / "config.json").read_text())["run"]
        check_reachable(address, tls.client_context(broker_identity(run), stolen), timeout=5.0)
        code, error = testbed.wait_until_gone()
        assert code == 3
        assert "somebody else connects with that participant's identity" in error


def test_a_participant_without_a_launcher_ends(tmp_path):
    parts = Parts(tmp_path)
    config = Parts.change(parts.split.clock(), lifeline=True)
    arguments = [sys.executable, "-m", "fogveil.clock", "--config", config]
    done = subprocess.run(
        arguments, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "fogveil.clock: the launcher was lost"


@pytest.mark.parametrize("after", [0.05, 0.15, 0.3, 0.5])
def test_ctrl_c_while_python_still_loads_is_no_traceback(after):
    arguments = [sys.executable, "-m", "fogveil.testbed.cli", "policies"]
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(after)
    os.kill(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    # Before the first line of ours Python itself may print something, or nothing.
    assert process.returncode in (0, 130, -signal.SIGINT)
    assert "testbed/cli/app.py" not in error
    assert "grpc" not in error


def test_a_reader_that_has_left_is_no_failed_check():
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [
        sys.executable,
        "-m",
        "fogveil.testbed.cli",
        "scenario",
        "show",
        TINY,
        "--as",
        "agent",
    ]
    try:
        done = subprocess.run(
            arguments, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
