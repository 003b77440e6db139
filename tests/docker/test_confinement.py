"""Who reaches whom: tried from inside the containers, and the audit's word on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import SCENARIOS
from test_runs import TINY, built, fogveil  # noqa: F401 (a fixture)

from fogveil.identity import AGENT
from testbed.containers.confining import try_all, try_from
from testbed.containers.launch import ContainerTestbed
from testbed.federated.split import Plan
from testbed.scenario import load_scenario
from testbed.world import build_world


@pytest.fixture
def at_work(client, built, tmp_path):  # noqa: F811
    """A testbed that takes its time."""
    scenario = load_scenario(SCENARIOS / "tiny.toml")
    plan = Plan(policies=("jsq",), speed=10.0, contained=True)
    with ContainerTestbed(build_world(scenario), plan, tmp_path / "up") as testbed:
        yield testbed


def test_nobody_reaches_more_than_promised(at_work):
    tried = try_all(at_work, [AGENT, *at_work.layout.providers])
    assert not tried.faults
    assert tried.tries > 500


def test_a_leak_would_be_found(at_work, client):
    """Two providers on one network, and a folder that the agent should not have."""
    layout = at_work.layout
    network = layout.home("fog-2")
    wide = next(n for n in client.networks.list() if n.name.endswith(network.name))
    mine = next(c for c in client.containers.list() if c.name.endswith("-fog-1"))
    wide.connect(mine)
    try:
        found = try_from(at_work, "fog-1").faults
    finally:
        wide.disconnect(mine)
    assert any("fog-1 reaches fog-2" in fault for fault in found)


def test_containers_are_locked_down(at_work, client):
    for container in client.containers.list(filters={"label": "org.fogveil.participant"}):
        host = container.attrs["HostConfig"]
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert not host["PortBindings"]
        assert not host["Privileged"]
        user = container.attrs["Config"]["User"]
        assert user.split(":")[0] not in ("", "0", "root")
        assert len([m for m in container.attrs["Mounts"] if m["Type"] == "bind"]) == 1


def test_networks_hold_no_two_providers(at_work):
    providers = {*at_work.layout.providers}
    for network in at_work.layout.networks:
        assert len(providers & {*network.members}) <= 1


def test_images_are_small_and_hold_no_tools(client, built):  # noqa: F811
    for image in ("fogveil-provider", "fogveil-testbed"):
        config = client.images.get(image).attrs["Config"]
        assert config["User"] == "fogveil"
        assert config["Healthcheck"]
        assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
        code = "import importlib.util as u; print([m for m in ('torch', 'pip') if u.find_spec(m)])"
        words = ["sh", "-c", f'python -c "{code}"; command -v gcc cc make; id -u']
        said = client.containers.run(image, words, remove=True, network_mode="none").decode()
        assert said.split() == ["[]", "10001"]


def test_a_provider_image_holds_no_agent(client, built):  # noqa: F811
    code = "import importlib.util as u; print([m for m in ('agent', 'testbed') if u.find_spec(m)])"
    said = client.containers.run(
        "fogveil-provider", ["python", "-c", code], remove=True, network_mode="none"
    )
    assert said.decode().strip() == "[]"


def test_the_audit_passes_and_its_process_line_is_a_pass(client, built, tmp_path: Path):  # noqa: F811
    done = fogveil("audit", TINY, "--docker", "--json", "--horizon", "600")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {f["promise"]: f for f in json.loads(done.stdout.splitlines()[-1])["findings"]}
    process = next(f for promise, f in found.items() if promise.startswith("process"))
    assert process["verdict"] == "PASS"
    assert "from inside the agent's container" in process["evidence"]
    verdicts = {f["verdict"] for f in found.values()}
    assert verdicts <= {"PASS", "MEASURED"}
