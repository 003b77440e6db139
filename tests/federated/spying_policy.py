"""A policy that looks for everything it should not find, and writes what it found to its folder."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from fogveil.agent.policy import Level, Policy

TARGETS = json.loads("""{}""")
"""Filled in by the test: where things are that a spy may have guessed."""
STATISTICS = (
    *("/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/sys/fs/file-nr", "/proc/meminfo"),
    *("/sys/devices/system/cpu/cpu0", "/sys/fs/cgroup"),
)
SOCK_DIAG, REQUEST, DUMP, DONE = 4, 1, 0x300, 3


def dump(family_request: bytes) -> int:
    """Count the sockets that the kernel shows in answer to a sock_diag request."""
    header = struct.pack("=IHHII", 16 + len(family_request), 20, REQUEST | DUMP, 1, 0)
    count = 0
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as netlink:
        netlink.settimeout(5)
        netlink.send(header + family_request)
        while True:
            data = netlink.recv(2**16)
            while len(data) >= 16:
                length, kind = struct.unpack_from("=IH", data)
                if kind in (2, DONE):
                    return count
                count += 1
                data = data[(length + 3) & ~3 :]


def tcp_sockets() -> int:
    """Count the TCP connections and listeners of whoever shares the network."""
    request = struct.pack("=BBBBI48x", socket.AF_INET, socket.IPPROTO_TCP, 2, 0, 0xFFFFFFFF)
    return dump(request)


def unix_sockets() -> int:
    """Count the listening Unix sockets of whoever shares the network."""
    return dump(struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 1 << 10, 0, 0, 0, 0))


def readable(path: str) -> bool:
    """Return whether a file has content that can be read, or a folder entries."""
    with suppress(OSError):
        return bool(list(Path(path).iterdir()) if Path(path).is_dir() else Path(path).read_bytes())
    return False


def connects(family: int, address) -> bool:
    """Return whether somebody accepts a connection."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        return probe.connect_ex(address) == 0


def scenarios_below(root: str) -> list[str]:
    """Return all TOML files that hold the planted secret."""
    found = []
    for folder, folders, names in os.walk(root):
        if folder == "/":
            folders[:] = [name for name in folders if name not in ("proc", "sys")]
        for name in names:
            if name.endswith(".toml"):
                with suppress(OSError):
                    path = Path(folder, name)
                    if TARGETS["secret"] in path.read_text(errors="replace"):
                        found.append(str(path))
    return found


def command_lines() -> list[str]:
    """Return the command line of every process in the process table."""
    lines = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                lines.append(b" ".join(words).decode(errors="replace").strip())
    return lines


def start_orphan() -> bool:
    """Start a process that leaves session and parent behind; return whether it was seen to run."""
    orphan = f"/bin/sh -c 'while :; do /bin/sleep 1; done' {TARGETS['token']}"
    command = ["/bin/sh", "-c", f"{orphan} </dev/null >/dev/null 2>&1 &"]
    subprocess.run(command, check=True, start_new_session=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(line.endswith(f"done {TARGETS['token']}") for line in command_lines()):
            return True
        time.sleep(0.05)
    return False


def look() -> dict:
    """Return everything that can be found."""
    return {
        "user": os.getuid(),
        "read": [path for path in TARGETS["paths"] if readable(path)],
        "scenarios": scenarios_below("/"),
        "commands": command_lines(),
        "tcp": tcp_sockets(),
        "unix": unix_sockets(),
        "abstract": connects(socket.AF_UNIX, "\0" + TARGETS["abstract"]),
        "port": connects(socket.AF_INET, ("127.0.0.1", TARGETS["port"])),
        "dialled": sorted(path.name for path in Path("/run/fogveil").glob("*")),
        "writes": [path for path in TARGETS["writes"] if os.access(path, os.W_OK)],
        "statistics": [path for path in STATISTICS if readable(path)],
        "environment": dict(os.environ),
    }


class Spy(Policy):
    """Places everything on the first node, and looks around once."""

    needs = Level.NONE

    def place(self, seen):
        path = Path(__file__).parents[1] / "found.json"  # in the agent's own folder
        if not path.exists():
            found = look()
            found["orphan"] = start_orphan()
            path.write_text(json.dumps(found))
        return 0
