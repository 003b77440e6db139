"""Recorded testbeds, and helpers shared by the tests of `fogveil inspect`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import grpc
import pytest
from support import ROOT, SCENARIOS
from typer.testing import CliRunner

from fogveil.protocol.identity import PROVIDER, Identity
from fogveil.testbed.cli.app import app
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

PROGRAMS = Path(sys.executable).parent
WATCH = "/fogveil.v1.QueueService/Watch"
HORIZON = 300.0


def inspect(*arguments):
    """Run `fogveil inspect` in this process; return its exit code and standard output."""
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)], catch_exceptions=True)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def inspect_json(*arguments):
    """Return the crossings that `fogveil inspect --json` lists."""
    code, text = inspect(*arguments, "--json")
    assert code == 0, text
    return [json.loads(line) for line in text.splitlines()]


def buf_curl(identity, host, address, *arguments):
    """Call a provider by an independent gRPC client; the last argument is the URL's path."""
    where = ()
    if address.startswith("unix:"):
        where, address = ("--unix-socket", address.removeprefix("unix:")), host
    return subprocess.run(
        [
            *(PROGRAMS / "buf", "curl", "--protocol", "grpc", "--servername", host),
            *("--cacert", identity / "authority.pem", "--cert", identity / "certificate.pem"),
            *("--key", identity / "key.pem", *where, *arguments[:-1]),
            f"https://{address}{arguments[-1]}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


class FollowedTestbed:
    """A recorded testbed that `inspect --live` followed, and that an auditor called."""

    def __init__(self, parent):
        self.folder = parent / "runs" / "up" / "tiny"
        world = build_world(load_scenario(SCENARIOS / "tiny.toml", {"horizon": HORIZON}))
        plan = Plan(policies=("jsq",), broker="builtin", record=True)
        with create_testbed(world, plan, self.folder, hold=True) as testbed:
            output = parent / "followed"
            with output.open("w") as stdout:
                follower = subprocess.Popen(
                    [PROGRAMS / "fogveil", "inspect", "--live", "--json"],
                    cwd=parent,
                    stdout=stdout,
                )
            self._call_as_auditor(testbed)
            while follower.poll() is None and not output.stat().st_size:
                time.sleep(0.05)
            self.first_line = output.read_text().splitlines()[0]
            testbed.release()
            testbed.wait()
        assert follower.wait(timeout=60) == 0
        self.followed = [*map(json.loads, output.read_text().splitlines())]
        self.crossings = inspect_json(self.folder)

    def _call_as_auditor(self, testbed):
        host, address = Identity(testbed.run, PROVIDER, "fog-3").host, testbed.addresses["fog-3"]
        auditor, agent = self.folder / "auditor", self.folder / "participants/agent/identity"
        testbed.split.identify("agent", "agent", agent)  # the agent has not started yet
        shown = address.replace("unix:", "-unix ")
        assert f"-authority {host} {shown} list" in (auditor / "grpcurl.txt").read_text()
        self.services = buf_curl(auditor, host, address, "--list-services", "")
        self.methods = buf_curl(auditor, host, address, "--list-methods", "")
        v1alpha = "--reflect-protocol", "grpc-v1alpha", "--list-methods", ""
        self.methods_by_v1alpha = buf_curl(auditor, host, address, *v1alpha)
        self.watch_as_auditor = buf_curl(auditor, host, address, WATCH)
        self.services_as_agent = buf_curl(agent, host, address, "--list-services", "")

    def participant(self, name):
        return self.folder / "participants" / name


class CapturedTestbed:
    """A plaintext testbed with its packets, among them those of an unknown client."""

    def __init__(self, parent):
        self.folder, self.packets = parent / "plain", parent / "all.pcapng"
        arguments = ("scenarios/tiny.toml", "--policy", "jsq", "--horizon", HORIZON, "--speed", 100)
        arguments += ("--out", self.folder, "--insecure", "--packets", self.packets)
        up = subprocess.Popen(
            [PROGRAMS / "fogveil", "up", *map(str, arguments)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        log = self.folder / "testbed.log"
        while not (log.exists() and "started agent" in log.read_text()):
            assert up.poll() is None, up.communicate()
            time.sleep(0.05)
        config = self.folder / "participants" / "agent" / "config.json"
        address = json.loads(config.read_text())["providers"]["fog-3"]
        with grpc.insecure_channel(address) as channel:
            reflect = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            with pytest.raises(grpc.RpcError) as self.refused:
                channel.unary_unary(reflect)(b"\x3a\x00", timeout=30)
        _, stderr = up.communicate(timeout=120)
        assert up.returncode == 0, stderr


def tshark(*arguments):
    command = ["tshark", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def read_entries(folder, name):
    """Return the lines of a participant's recording, parsed."""
    text = (folder / "participants" / name / "traffic.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def edit_recording(folder, name, edit):
    """Edit a participant's recording entry by entry; where `edit` returns None, drop the entry."""
    entries = [edited for entry in read_entries(folder, name) if (edited := edit(entry))]
    path = folder / "participants" / name / "traffic.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def edit_response(index, edit, sender="fog-3"):
    """Return an edit of the one response with this index that a provider sent to the agent."""
    indices = count()

    def edit_entry(entry):
        ends = entry["from"], entry["to"], entry["kind"]
        chosen = ends == (sender, "agent", "response") and next(indices) == index
        return edit(entry) if chosen else entry

    return edit_entry
