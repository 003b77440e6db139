"""The compose file: generated as it is checked in, and run to its end by compose alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
import yaml
from docker_support import TINY, fogveil
from support import ROOT

from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.launch.docker.image_build import EXPERIMENTER, PARTICIPANT_ROLES, image_of
from fogveil.testbed.scenario import load_scenario

EXAMPLE = ROOT / "examples" / "tiny"


def test_the_example_is_what_the_command_writes(tmp_path):
    done = fogveil("docker", "generate", TINY, "--policy", "jsq", "--seed", "1", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        name = path.relative_to(tmp_path)
        text = path.read_text().replace(os.path.relpath(ROOT, tmp_path), "../..")
        assert text == (EXAMPLE / name).read_text(), f"{name}: run `fogveil docker generate` again"


def test_nobody_shares_a_volume_and_no_port_is_published():
    services = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    experimenter = {"prepare", "evaluate"}
    assert {*services} > experimenter | {"agent", "broker", "clock", "cloud", "fog-1", "sources"}
    for name, service in services.items():
        assert "ports" not in service
        assert service["read_only"]
        if name not in experimenter:
            assert service["volumes"] == [f"{name}:/participant"]
    assert services["prepare"]["network_mode"] == services["evaluate"]["network_mode"] == "none"


@pytest.fixture
def compose(client, built, tmp_path):
    """Runs compose in a folder of this test; everything is removed afterwards."""
    folder = tmp_path / "composed"

    def compose(*words):
        return subprocess.run(
            ["docker", "compose", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    yield compose
    compose("down", "--volumes", "--timeout", "2")


def check_run(folder, done):
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads((folder / "runs" / "run.json").read_text())
    assert result["run_hash"] == run_embedded(load_scenario(TINY), "jsq")["run_hash"]
    assert (folder / "runs" / "jobs.parquet").stat().st_uid == (folder / "runs").stat().st_uid
    assert not list((folder / "runs").rglob("key.pem"))
    shown = fogveil("inspect", folder / "runs", "--summary")
    assert shown.returncode == 0, shown.stderr


def test_compose_up_alone_runs_the_example_to_its_end(compose, tmp_path):
    """From its checked-in file, in a folder where its path to the checkout does not hold."""
    folder = tmp_path / "composed"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.parquet", "participants"))
    path = folder / "compose.yaml"
    path.write_text(path.read_text().replace("../..", str(ROOT)))
    check_run(folder, compose("up"))


def test_an_installed_wheel_writes_a_folder_that_builds_and_runs(
    client, compose, installed, tmp_path
):
    """Without a checkout the folder holds what images are built from; compose builds them all."""
    folder = tmp_path / "composed"
    words = ("docker", "generate", "tiny", "--policy", "jsq", "--seed", "1", "--out", folder)
    done = fogveil(*words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)})
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in (folder / "compose.yaml").read_text()
    for role in (EXPERIMENTER, *PARTICIPANT_ROLES):
        image = client.images.get(image_of(role)) if has_image(client, role) else None
        if image:  # a second name keeps its layers, of which the build makes use
            image.tag(f"{image_of(role)}-kept")
            client.images.remove(image_of(role))
    try:
        check_run(folder, compose("up"))
    finally:
        for role in (EXPERIMENTER, *PARTICIPANT_ROLES):
            if client.images.list(f"{image_of(role)}-kept"):
                client.images.remove(f"{image_of(role)}-kept")


def has_image(client, role):
    return bool(client.images.list(image_of(role)))
