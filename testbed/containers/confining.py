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
import json, os, socket, sys
from concurrent.futures import ThreadPoolExecutor
given = json.loads(sys.argv[1])
def connects(address):
    try:
        socket.create_connection(tuple(address), timeout=2).close()
    except OSError:
        return False
    return True
def readable(path):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
    except OSError:
        return False
    return True
with ThreadPoolExecutor(32) as pool:
    reached = list(pool.map(connects, given["addresses"]))
print(json.dumps({
    "reached": [a for a, yes in zip(given["addresses"], reached) if yes],
    "read": [p for p in given["paths"] if readable(p)],
    "name": json.load(open("config.json"))["name"],
    "processes": [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()],
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
    if len(got["processes"]) > 1:
        faults.append(f"{name} sees {len(got['processes'])} processes beside itself")
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
