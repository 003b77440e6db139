"""Testbeds to inspect, and what the tests of `fogveil inspect` have in common."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from support import ROOT, SCENARIOS
from typer.testing import CliRunner

from fogveil.identity import PROVIDER, Identity
from testbed.cli.app import app
from testbed.federated.launch import Testbed
from testbed.federated.split import Plan
from testbed.scenario import load_scenario
from testbed.world import build_world

PROGRAMS = Path(sys.executable).parent
WATCH = "/fogveil.v1.QueueService/Watch"
HORIZON = 300.0


def inspect(*words):
    """Run the command here; return its exit code and what it printed."""
    done = CliRunner().invoke(app, ["inspect", *map(str, words)], catch_exceptions=True)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def listed(*words):
    code, text = inspect(*words, "--json")
    assert code == 0, text
    return [json.loads(line) for line in text.splitlines()]


def buf(identity, host, address, *words):
    """Call a provider as an auditor does, with a client that is not ours."""
    return subprocess.run(
        [
            *(PROGRAMS / "buf", "curl", "--protocol", "grpc", "--servername", host),
            *("--cacert", identity / "authority.pem", "--cert", identity / "certificate.pem"),
            *("--key", identity / "key.pem", *words[:-1], f"https://{address}{words[-1]}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


class Watched:
    """A testbed that was followed while it ran, with what an auditor could do meanwhile."""

    def __init__(self, place):
        self.folder = place / "runs" / "up" / "tiny"
        world = build_world(load_scenario(SCENARIOS / "tiny.toml", {"horizon": HORIZON}))
        plan = Plan(policies=("jsq",), broker="builtin", record=True)
        with Testbed(world, plan, self.folder, hold=True) as testbed:
            with (place / "followed").open("w") as shown:
                follower = subprocess.Popen(
                    [PROGRAMS / "fogveil", "inspect", "--live", "--json"], cwd=place, stdout=shown
                )
            self._audit(testbed)
            while follower.poll() is None and not (place / "followed").stat().st_size:
                time.sleep(0.05)
            self.early = (place / "followed").read_text().splitlines()[0]
            testbed.release()
            testbed.wait()
        assert follower.wait(timeout=60) == 0
        self.followed = [*map(json.loads, (place / "followed").read_text().splitlines())]
        self.listed = listed(self.folder)

    def _audit(self, testbed):
        host, address = Identity(testbed.run, PROVIDER, "fog-3").host, testbed.addresses["fog-3"]
        auditor, agent = self.folder / "auditor", self.folder / "participants/agent/identity"
        testbed.split.identify("agent", "agent", agent)  # it is not up yet
        self.words = (auditor / "grpcurl.txt").read_text()
        assert f"-authority {host} {address} list" in self.words
        self.services = buf(auditor, host, address, "--list-services", "")
        self.methods = buf(auditor, host, address, "--list-methods", "")
        old = "--reflect-protocol", "grpc-v1alpha", "--list-methods", ""
        self.old_methods = buf(auditor, host, address, *old)
        self.watching = buf(auditor, host, address, WATCH)
        self.as_agent = buf(agent, host, address, "--list-services", "")

    def participant(self, name):
        return self.folder / "participants" / name


class Captured:
    """A testbed in plain text, with its packets, and with a stranger's among them."""

    def __init__(self, place):
        self.folder, self.packets = place / "plain", place / "all.pcapng"
        words = ("scenarios/tiny.toml", "--policy", "jsq", "--horizon", HORIZON, "--speed", 100)
        words += ("--out", self.folder, "--insecure", "--packets", self.packets)
        up = subprocess.Popen(
            [PROGRAMS / "fogveil", "up", *map(str, words)],
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
        address = json.loads(config.read_text())["own"]["providers"]["fog-3"]
        with grpc.insecure_channel(address) as channel:
            reflect = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            with pytest.raises(grpc.RpcError) as self.refused:
                channel.unary_unary(reflect)(b"\x3a\x00", timeout=30)
        _, said = up.communicate(timeout=120)
        assert up.returncode == 0, said


def tshark(*words):
    words = ["tshark", *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def noted(folder, name):
    text = (folder / "participants" / name / "traffic.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def change(folder, name, changed):
    """Change one end's recording, line by line; None takes a line away."""
    lines = [each for line in noted(folder, name) if (each := changed(line)) is not None]
    path = folder / "participants" / name / "traffic.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def number(which, change_it, sender="fog-3"):
    """Return a change of the so-manieth count that a provider told."""
    seen = iter(range(10**6))

    def changed(line):
        told = (line["from"], line["to"], line["kind"]) == (sender, "agent", "response")
        return change_it(line) if told and next(seen) == which else line

    return changed
