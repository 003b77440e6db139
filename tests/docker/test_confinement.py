"""Who reaches whom, tried from inside the containers; and what the images hold."""

from __future__ import annotations

import json

import pytest
from docker_support import TINY, fogveil

from fogveil.protocol.identity import AGENT, BROKER, CLOCK, PROVIDER, SOURCES
from fogveil.testbed.launch.docker.engine_client import PARTICIPANT_LABEL, RUN_LABEL, EngineClient
from fogveil.testbed.launch.docker.image_build import EXPERIMENTER, build_images, image_of
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.privacy.audit.reachability_probe import probe_container, probe_containers
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world
from fogveil.testbed.source_tree import PORTIONS

SHARED = {"core", "protocol", "v1", "broker"}
PORTIONS_OF = {
    PROVIDER: SHARED | {"provider_node"},
    AGENT: SHARED | {"agent"},
    SOURCES: SHARED | {"sources"},
    CLOCK: SHARED | {"clock"},
    BROKER: SHARED,
    EXPERIMENTER: {*PORTIONS},
}
"""The portions of the package in each image."""
LIBRARIES = (
    "docker",
    "matplotlib",
    "networkx",
    "pip",
    "pyarrow",
    "rich",
    "scipy",
    "simpy",
    "torch",
)
"""Libraries that no participant needs."""
LOOK = """
import importlib.util as util, json, sys
names, libraries = json.loads(sys.argv[1])
found = [name for name in names if util.find_spec(f"fogveil.{name}")]
print(json.dumps([found, [name for name in libraries if util.find_spec(name)]]))
"""


@pytest.fixture
def running(client, built, tmp_path):
    """A testbed that runs slowly."""
    plan = Plan(policies=("jsq",), speed=10.0, contained=True)
    with create_testbed(build_world(load_scenario(TINY)), plan, tmp_path / "up") as testbed:
        yield testbed


def test_nobody_reaches_more_than_promised(running):
    result = probe_containers(running, [AGENT, *running.launcher.layout.providers])
    assert not result.faults
    assert result.tries > 500


def test_a_leak_would_be_found(running, client):
    """Two providers on one network."""
    network = running.launcher.layout.home("fog-2")
    (boundary,) = (n for n in client.networks.list() if n.name.endswith(network.name))
    (fog,) = (c for c in client.containers.list() if c.name.endswith("-fog-1"))
    boundary.connect(fog)
    try:
        faults = probe_container(running, "fog-1").faults
    finally:
        boundary.disconnect(fog)
    assert any("fog-1 reaches fog-2" in fault for fault in faults)


def test_containers_are_locked_down(running, client):
    labelled = {"label": f"{RUN_LABEL}={running.run}"}
    containers = client.containers.list(filters=labelled)
    names = [container.labels[PARTICIPANT_LABEL] for container in containers]
    assert sorted(names) == sorted(running.launcher.layout.members)
    for container in containers:
        host = container.attrs["HostConfig"]
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert not host["PortBindings"]
        assert not host["Privileged"]
        user = container.attrs["Config"]["User"]
        assert user.split(":")[0] not in ("", "0", "root")
        assert len([m for m in container.attrs["Mounts"] if m["Type"] == "bind"]) == 1


def test_networks_hold_no_two_providers(running):
    layout = running.launcher.layout
    assert len(layout.networks) == 10
    for network in layout.networks:
        assert len({*layout.providers} & {*network.members}) <= 1


@pytest.fixture(scope="session")
def all_images(built):
    """The images of all roles, of which a run needs only some."""
    engine = EngineClient()
    try:
        build_images(engine.api, PORTIONS_OF, lambda _line: None)
    finally:
        engine.close()


@pytest.mark.parametrize("role", PORTIONS_OF)
def test_an_image_holds_its_own_portions_and_no_tools(client, all_images, role):
    config = client.images.get(image_of(role)).attrs["Config"]
    assert config["User"] == "fogveil"
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    question = json.dumps([PORTIONS, LIBRARIES])
    portions, libraries = json.loads(run_in(client, role, ["python", "-c", LOOK, question]))
    assert {*portions} == PORTIONS_OF[role]
    absent = {"pip", "torch"} if role == EXPERIMENTER else {*LIBRARIES}
    assert not absent & {*libraries}
    tools = run_in(client, role, ["sh", "-c", "command -v gcc cc make; id -u"])
    assert tools.split() == ["10001"]


def test_the_images_of_participants_share_their_libraries(client, all_images):
    """All layers but those of the role's own code are the same."""
    layers = {
        role: client.images.get(image_of(role)).attrs["RootFS"]["Layers"]
        for role in PORTIONS_OF
        if role != EXPERIMENTER
    }
    shared = layers[BROKER]
    assert len(shared) > 5
    for role, all_layers in layers.items():
        assert all_layers[: len(shared)] == shared, role
        assert len(all_layers) <= len(shared) + 2


def run_in(client, role, command):
    """Run a command in a fresh container and return what it writes."""
    return client.containers.run(image_of(role), command, remove=True, network_mode="none").decode()


def test_the_audit_passes_and_its_process_line_is_a_pass(client, built):
    done = fogveil("audit", TINY, "--docker", "--json", "--horizon", "600")
    assert done.returncode == 0, done.stdout + done.stderr
    findings = json.loads(done.stdout.splitlines()[-1])["findings"]
    (process,) = (each for each in findings if each["promise"].startswith("process"))
    assert process["verdict"] == "PASS"
    assert "from inside the agent's container" in process["evidence"]
    assert {each["verdict"] for each in findings} <= {"PASS", "MEASURED"}
