"""The compose file: generated as it is checked in, and run to its end by compose alone."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
import yaml
from support import ROOT
from test_runs import TINY, built, fogveil  # noqa: F401 (a fixture)

from testbed.run import run_embedded
from testbed.scenario import load_scenario

EXAMPLE = ROOT / "examples" / "tiny"


def test_the_example_is_what_the_command_writes(tmp_path):
    place = ROOT / "examples" / "tiny-fresh"
    try:
        done = fogveil("docker", "generate", TINY, "--policy", "jsq", "--out", place)
        assert done.returncode == 0, done.stderr
        for name in ("compose.yaml", "scenario/scenario.toml", "runs/.gitignore"):
            assert (place / name).read_text() == (EXAMPLE / name).read_text(), name
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_nobody_shares_a_volume_and_no_port_is_published():
    services = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    experimenter = {"prepare", "evaluate"}
    for name, service in services.items():
        assert "ports" not in service
        assert service["read_only"]
        if name not in experimenter:
            assert service["volumes"] == [f"{name}:/participant"]
    assert services["prepare"]["network_mode"] == services["evaluate"]["network_mode"] == "none"


@pytest.fixture
def folder(client, built, tmp_path):  # noqa: F811
    """A copy of the example beside the checkout's own, so that its paths hold."""
    place = ROOT / "examples" / "tiny-test"
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("*.parquet", "participants"))
    try:
        yield place
    finally:
        compose(place, "down", "--volumes", "--timeout", "2")
        shutil.rmtree(place)


def compose(place, *words):
    return subprocess.run(
        ["docker", "compose", *words],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_compose_up_alone_runs_the_example_to_its_end(folder):
    done = compose(folder, "up")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads((folder / "runs" / "run.json").read_text())
    assert told["run_hash"] == run_embedded(load_scenario(TINY), "jsq")["run_hash"]
    assert (folder / "runs" / "jobs.parquet").stat().st_uid == (folder / "runs").stat().st_uid
    assert not list((folder / "runs").rglob("key.pem"))
    shown = fogveil("inspect", folder / "runs", "--summary")
    assert shown.returncode == 0, shown.stderr
