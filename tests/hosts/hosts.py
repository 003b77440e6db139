"""Hosts for tests: network namespaces on a switch that leads nowhere else.

A host has its own network, processes, mounts and `/run`; it shares kernel and disk with all others.
Nothing of the machine's own network is touched. Where namespaces cannot be made, tests fail.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BRIDGE, CABLE = "bridge", "eth0"
INSIDE = 'mount -t tmpfs tmpfs /run && hostname "$0" && exec "$@"'
"""What a program of a host is started by, in namespaces of its own."""


class Host:
    """A host by the name of its network namespace; `address` is that of its one interface."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name, self.namespace, self.address = name, namespace, address
        self._programs: list[subprocess.Popen[bytes]] = []

    def start(
        self, *words: object, cwd: Path, log: Path, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a program; what it prints goes to a file."""
        network = ("nsenter", f"--net=/var/run/netns/{self.namespace}")
        rest = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
        inside = ("--mount-proc", "sh", "-c", INSIDE, self.name)
        with log.open("wb") as output:
            program = subprocess.Popen(
                [*network, *rest, *inside, *map(str, words)],
                cwd=cwd,
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._programs.append(program)
        return program

    def lose_power(self) -> None:
        """End all programs at once, without a word to anybody they are connected with."""
        self.cut()
        for program in self._programs:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
        for program in self._programs:
            program.wait()
        self._programs.clear()

    def cut(self) -> None:
        """Cut the cable to the switch."""
        _ip("-n", self.namespace, "link", "set", CABLE, "down")

    def mend(self) -> None:
        """Put the cable back."""
        _ip("-n", self.namespace, "link", "set", CABLE, "up")


class Switch:
    """Connects hosts with each other, and with nothing else."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(3)
        self.namespace = self._name("switch")
        self._hosts: list[Host] = []
        _ip("netns", "add", self.namespace)
        _ip("-n", self.namespace, "link", "add", BRIDGE, "type", "bridge")
        _ip("-n", self.namespace, "link", "set", BRIDGE, "up")

    def _name(self, name: str) -> str:
        return f"fogveil-{self._token}-{name}"

    def connect(self, name: str) -> Host:
        """Return a new host with a cable to this switch."""
        number = len(self._hosts) + 1
        host = Host(name, self._name(name), f"10.77.0.{number}")
        self._hosts.append(host)
        _ip("netns", "add", host.namespace)
        peer = ("peer", "name", CABLE, "netns", host.namespace)
        _ip("-n", self.namespace, "link", "add", f"port{number}", "type", "veth", *peer)
        _ip("-n", self.namespace, "link", "set", f"port{number}", "master", BRIDGE, "up")
        _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", CABLE)
        _ip("-n", host.namespace, "link", "set", "lo", "up")
        host.mend()
        return host

    def remove(self) -> None:
        """End all hosts."""
        for host in self._hosts:
            host.lose_power()
            _ip("netns", "delete", host.namespace)
        _ip("netns", "delete", self.namespace)


@contextmanager
def switch() -> Iterator[Switch]:
    """Make a switch; its hosts end with the context."""
    made = Switch()
    try:
        yield made
    finally:
        made.remove()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"no host for tests can be made: ip {' '.join(words)}: {done.stderr.strip()} "
        "(it takes root and network namespaces; `make test NO_HOSTS=1` leaves these tests out)"
    )
