"""What a participant can reach from inside its container, found out by trying."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.launch.docker.container import ContainerProcess
from fogveil.testbed.launch.docker.docker_launcher import DockerLauncher
from fogveil.testbed.launch.docker.layout import Layout
from fogveil.testbed.launch.testbed import Testbed

OTHER_PORTS = (22, 80, 1883, 2375, 50051)
"""Ports on which nothing should listen, but something might."""

PROBE = """
import asyncio, json, os, sys, time
targets = json.loads(sys.argv[1])
async def connects(host, port):
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 2)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
async def connect_all():
    return await asyncio.gather(*(connects(*address) for address in targets["addresses"]))
def readable(path):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
    except OSError:
        return False
    return True
def unexpected(process):
    if int(process) in (1, os.getpid()):
        return False
    try:
        command = open(f"/proc/{process}/cmdline", "rb").read().split(b"\\0")
        return b"fogveil.protocol.health" not in command
    except FileNotFoundError:
        return False
def strangers():
    return [p for p in os.listdir("/proc") if p.isdigit() and unexpected(p)]
connected = asyncio.run(connect_all())
deadline = time.monotonic() + 10
while strangers() and time.monotonic() < deadline:
    time.sleep(0.2)  # the engine starts health checks, which do not look like it at first
print(json.dumps({
    "reached": [a for a, yes in zip(targets["addresses"], connected) if yes],
    "read": [p for p in targets["paths"] if readable(p)],
    "name": json.load(open("config.json"))["name"],
    "processes": strangers(),
    "writes": os.access("/", os.W_OK) or os.access("/opt", os.W_OK),
}))
"""


class ProbeResult(NamedTuple):
    """How much was tried from inside containers, and what went otherwise than promised."""

    tries: int
    faults: list[str]


def probe_container(testbed: Testbed, name: str) -> ProbeResult:
    """Try, from inside one participant's container, all addresses and files of all others."""
    layout, split = _layout(testbed), testbed.split
    process = testbed.participants[name].process
    assert isinstance(process, ContainerProcess)
    others = [other for other in layout.members if other != name]
    ports = sorted({layout.port(other) for other in layout.members} | {*OTHER_PORTS})
    owners = {network.address(other): other for other in others for network in layout.of(other)}
    addresses = [(host, port) for host in owners for port in ports]
    folders = [split.folder_of(other).absolute() for other in others]
    paths = [
        str(path)
        for folder in folders
        for path in (folder, folder / "config.json", folder / "identity" / "key.pem")
    ]
    targets = json.dumps({"addresses": addresses, "paths": paths})
    result = json.loads(process.execute(["python", "-c", PROBE, targets]))
    allowed = reachable_addresses(layout, name)
    reached = {(host, port) for host, port in result["reached"]}
    faults = [
        f"{name} reaches {owners[host]} at {host}:{port}"
        for host, port in sorted(reached - allowed)
    ]
    faults += [
        f"{name} does not reach {owners[host]} at {host}:{port}, and should"
        for host, port in sorted(allowed - reached)
    ]
    faults += [f"{name} reads {path}" for path in result["read"]]
    if result["name"] != name:
        faults.append(f"the folder of {name} is that of {result['name']}")
    if result["writes"]:
        faults.append(f"{name} can write outside of its folder")
    if result["processes"]:  # except itself, its health check, and this probe
        faults.append(f"{name} sees {len(result['processes'])} processes of others")
    mounted = process.mounts()
    if mounted != [str(split.folder_of(name).absolute())]:
        faults.append(f"mounted into {name}: {', '.join(mounted)}")
    return ProbeResult(len(addresses) + len(paths), faults)


def reachable_addresses(layout: Layout, name: str) -> set[tuple[str, int]]:
    """Return what a participant may reach: whom it dials, where it dials them, and nothing else."""
    addresses = {
        (network.address(other), layout.port(other))
        for network in layout.of(name)
        for other in (CLOCK, BROKER)
        if other in network.members
    }
    if name == AGENT:
        addresses |= {
            (layout.home(other).address(other), layout.port(other)) for other in layout.providers
        }
    return addresses


def probe_containers(testbed: Testbed, names: Iterable[str]) -> ProbeResult:
    """Try from several participants' containers."""
    results = [probe_container(testbed, name) for name in names]
    return ProbeResult(
        sum(result.tries for result in results),
        [fault for result in results for fault in result.faults],
    )


def probe_providers(testbed: Testbed) -> ProbeResult | None:
    """Try from every provider's container; None where participants are no containers."""
    if not isinstance(testbed.launcher, DockerLauncher):
        return None
    return probe_containers(testbed, testbed.launcher.layout.providers)


def _layout(testbed: Testbed) -> Layout:
    assert isinstance(testbed.launcher, DockerLauncher)
    return testbed.launcher.layout
