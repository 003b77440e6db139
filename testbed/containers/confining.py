"""What can be reached from inside a container: shown by trying, from there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from fogveil.identity import AGENT, BROKER, CLOCK
from testbed.containers.engine import Contained
from testbed.containers.launch import ContainerTestbed

OTHER_PORTS = (22, 80, 1883, 2375, 50051)
"""Where something might listen that should not."""

PROBE = """
import asyncio, json, os, sys
given = json.loads(sys.argv[1])
async def connects(host, port):
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 2)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
async def connect_all():
    return await asyncio.gather(*(connects(*address) for address in given["addresses"]))
def readable(path):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
    except OSError:
        return False
    return True
def stranger(process):
    if int(process) in (1, os.getpid()):
        return False
    try:
        return b"fogveil.health" not in open(f"/proc/{process}/cmdline", "rb").read().split(b"\\0")
    except FileNotFoundError:
        return False
reached = asyncio.run(connect_all())
print(json.dumps({
    "reached": [a for a, yes in zip(given["addresses"], reached) if yes],
    "read": [p for p in given["paths"] if readable(p)],
    "name": json.load(open("config.json"))["name"],
    "processes": [p for p in os.listdir("/proc") if p.isdigit() and stranger(p)],
    "writes": os.access("/", os.W_OK) or os.access("/opt", os.W_OK),
}))
"""


class Tried(NamedTuple):
    """What one container tried, and what went otherwise than promised."""

    tries: int
    faults: list[str]


def try_from(testbed: ContainerTestbed, name: str) -> Tried:
    """Try, from inside one participant's container, all addresses and files of all others."""
    layout, split = testbed.layout, testbed.split
    process: Any = testbed.participants[name].process
    assert isinstance(process, Contained)
    others = [other for other in layout.members if other != name]
    ports = sorted({layout.port(other) for other in layout.members} | {*OTHER_PORTS})
    addresses = [
        (network.address(other), port)
        for other in others
        for network in layout.of(other)
        for port in ports
    ]
    folders = [split.folder_of(other).absolute() for other in others]
    paths = [
        str(path)
        for folder in folders
        for path in (folder, folder / "config.json", folder / "identity" / "key.pem")
    ]
    given = json.dumps({"addresses": addresses, "paths": paths})
    got = json.loads(process.execute(["python", "-c", PROBE, given]))
    allowed = promised(testbed, name)
    reached = {(host, port) for host, port in got["reached"]}
    owner = {network.address(other): other for other in others for network in layout.of(other)}
    faults = [
        f"{name} reaches {owner[host]} at {host}:{port}" for host, port in sorted(reached - allowed)
    ]
    faults += [
        f"{name} does not reach {owner[host]} at {host}:{port}, and should"
        for host, port in sorted(allowed - reached)
    ]
    faults += [f"{name} reads {path}" for path in got["read"]]
    if got["name"] != name:
        faults.append(f"the folder of {name} is that of {got['name']}")
    if got["writes"]:
        faults.append(f"{name} can write outside of its folder")
    if got["processes"]:  # beside itself, whoever asks for its health, and this trial
        faults.append(f"{name} sees {len(got['processes'])} processes of others")
    mounted = process.mounts()
    if mounted != [str(split.folder_of(name).absolute())]:
        faults.append(f"mounted into {name}: {', '.join(mounted)}")
    return Tried(len(addresses) + len(paths), faults)


def promised(testbed: ContainerTestbed, name: str) -> set[tuple[str, int]]:
    """Return what a participant may reach: whom it dials, where it dials them, and nothing else."""
    layout = testbed.layout
    found = {
        (network.address(other), layout.port(other))
        for network in layout.of(name)
        for other in (CLOCK, BROKER)
        if other in network.members
    }
    if name == AGENT:
        found |= {
            (layout.home(other).address(other), layout.port(other)) for other in layout.providers
        }
    return found


def try_all(testbed: ContainerTestbed, names: Iterable[str]) -> Tried:
    """Try from several containers."""
    tried = [try_from(testbed, name) for name in names]
    return Tried(
        sum(each.tries for each in tried), [fault for each in tried for fault in each.faults]
    )
