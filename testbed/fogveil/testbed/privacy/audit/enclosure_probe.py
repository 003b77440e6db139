"""What can be found of the machine and of others, tried from where a participant is.

The source of this module is run by `python -c` inside the agent's namespaces as the agent's user,
with the targets as JSON on standard input; so it imports nothing that the agent could not import.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from fogveil.protocol.linux_calls import drop_capabilities

PTRACE_ATTACH = 16
SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
REQUEST_AND_DUMP, ERROR, DONE = 0x301, 2, 3
LISTENING = 1 << 10
HEADER = struct.Struct("=IHHII")
OF_PROCESSES = ("mem", "environ", "maps", "auxv", "fd", "cmdline", "cwd")


def try_all(targets: dict[str, Any]) -> tuple[int, list[str]]:
    """Return how much was tried, and a sentence for everything that succeeded."""
    faults: list[str] = []
    visible = [int(name.name) for name in Path("/proc").iterdir() if name.name.isdigit()]
    own = set(visible) if targets["enclosed"] else set()
    paths = dict(targets["paths"])
    for name, pid in targets["processes"].items():
        if pid not in own:  # that number is then somebody in here
            paths |= {f"/proc/{pid}/{file}": name for file in OF_PROCESSES}
    faults += [f"{path} of {name} can be read" for path, name in paths.items() if readable(path)]
    libc = ctypes.CDLL(None, use_errno=True)
    for name, pid in targets["processes"].items():
        if pid not in own and libc.ptrace(PTRACE_ATTACH, pid, None, None) == 0:
            faults.append(f"the process of {name} can be traced")
    if targets["enclosed"]:
        others = [pid for pid in visible if pid not in (1, os.getpid())]
        faults += [f"process {pid} of somebody else can be seen" for pid in others]
    faults += _try_sockets(targets)
    faults += [
        f"{path} can be written to" for path in targets["writes"] if os.access(path, os.W_OK)
    ]
    return len(paths) + len(targets["processes"]) + len(targets["writes"]) + 5, faults


def readable(path: str) -> bool:
    """Return whether a file has content, or a folder entries, that can be read."""
    with suppress(OSError):
        if Path(path).is_dir():
            return next(Path(path).iterdir(), None) is not None
        with Path(path).open("rb") as file:
            return bool(file.read(1))
    return False


def _try_sockets(targets: dict[str, Any]) -> list[str]:
    faults = []
    tcp = struct.pack("=BBBBI48x", socket.AF_INET, socket.IPPROTO_TCP, 2, 0, 2**32 - 1)
    unix = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, LISTENING, 0, 0, 0, 0)
    for kind, request in (("TCP connections", tcp), ("listening Unix sockets", unix)):
        if count := _shown_by_kernel(request):
            faults.append(f"the kernel shows {count} {kind} of others with their statistics")
    if _connects(socket.AF_UNIX, f"\0{targets['abstract']}"):
        faults.append("an abstract Unix socket of the launcher accepts a connection")
    if _connects(socket.AF_INET, ("127.0.0.1", targets["port"])):
        faults.append("a port of the launcher on loopback accepts a connection")
    folder = Path(targets["sockets"])
    found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if targets["enclosed"] and found != targets["dialled"]:
        faults.append(f"sockets can be reached of {found}, expected {targets['dialled']}")
    return faults


def _shown_by_kernel(request: bytes) -> int:
    """Return how many sockets the kernel describes in answer to a sock_diag request."""
    count = 0
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as netlink:
            netlink.settimeout(10)
            length = HEADER.size + len(request)
            header = HEADER.pack(length, SOCK_DIAG_BY_FAMILY, REQUEST_AND_DUMP, 1, 0)
            netlink.send(header + request)
            while True:
                data = netlink.recv(2**16)
                while len(data) >= HEADER.size:
                    length, kind, *_ = HEADER.unpack_from(data)
                    if kind in (ERROR, DONE):
                        return count
                    count += 1
                    data = data[(length + 3) & ~3 :]
    except OSError:
        return count


def _connects(family: socket.AddressFamily, address: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        return probe.connect_ex(address) == 0


if __name__ == "__main__":
    drop_capabilities()
    sys.stdout.write(json.dumps(try_all(json.load(sys.stdin))))
