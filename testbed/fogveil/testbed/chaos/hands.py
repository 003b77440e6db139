"""Real harm to participants: signals for processes, orders of the engine for containers."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from docker.errors import DockerException

from fogveil.protocol.identity import BROKER
from fogveil.testbed.launch.docker.docker_launcher import DockerLauncher
from fogveil.testbed.launch.docker.engine_client import PARTICIPANT_LABEL, RUN_LABEL, EngineClient
from fogveil.testbed.launch.local_launcher import LocalLauncher
from fogveil.testbed.launch.testbed import Testbed

PROC = Path("/proc")


class Hands(Protocol):
    """Whoever disturbs a run; a victim that is gone already is left in peace."""

    def find(self, name: str) -> Any:
        """Return the present process or container of a participant or of the broker, or None."""

    def kill(self, victim: Any) -> None:
        """End it at once."""

    def stop(self, victim: Any) -> None:
        """Let it stand still."""

    def go_on(self, victim: Any) -> None:
        """Let it go on."""

    def disconnect(self, victim: Any) -> Any:
        """Take it off its networks; return what `reconnect` needs."""

    def reconnect(self, networks: Any) -> None:
        """Put it back on its networks."""

    def left_over(self, folder: Path) -> list[str]:
        """Return what there still is of a run that is over."""


class ProcessHands:
    """Disturbs processes of this machine by signals."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed

    def find(self, name: str) -> int | None:
        """Return a process id."""
        if name == BROKER:
            broker = self._testbed.broker
            return broker.pid if broker and broker.alive() else None
        participant = self._testbed.participants.get(name)
        if participant is None or participant.process.poll() is not None:
            return None
        return participant.process.pid

    def kill(self, victim: int) -> None:
        """Send SIGKILL."""
        _signal(victim, signal.SIGKILL)

    def stop(self, victim: int) -> None:
        """Send SIGSTOP."""
        _signal(victim, signal.SIGSTOP)

    def go_on(self, victim: int) -> None:
        """Send SIGCONT."""
        _signal(victim, signal.SIGCONT)

    def disconnect(self, victim: int) -> Any:
        """Do nothing: sockets of processes cannot be taken away."""

    def reconnect(self, networks: Any) -> None:
        """Do nothing."""

    def left_over(self, folder: Path) -> list[str]:
        """Return processes that know the run's folder, and the folder of its sockets."""
        left = [f"process {pid}" for pid in _processes_of(folder)]
        launcher = self._testbed.launcher
        if isinstance(launcher, LocalLauncher) and launcher.sockets:
            root = launcher.sockets.root
            left += [str(root)] if root.exists() else []
        return left


def _signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _processes_of(folder: Path) -> list[int]:
    """Return the processes whose command names a folder."""
    named, found = str(folder.resolve()).encode(), []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if named in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


class ContainerHands:
    """Disturbs containers."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._client: EngineClient | None = None

    @property
    def _api(self) -> Any:
        if self._client is None:
            self._client = EngineClient()
        return self._client.api

    def find(self, name: str) -> str | None:
        """Return the id of a container that runs."""
        assert isinstance(self._testbed.launcher, DockerLauncher)
        labels = [f"{RUN_LABEL}={self._testbed.run}", f"{PARTICIPANT_LABEL}={name}"]
        containers = self._api.containers(filters={"label": labels, "status": "running"})
        return containers[0]["Id"] if containers else None

    def kill(self, victim: str) -> None:
        """Kill a container."""
        with suppress(DockerException):
            self._api.kill(victim)

    def stop(self, victim: str) -> None:
        """Pause it."""
        with suppress(DockerException):
            self._api.pause(victim)

    def go_on(self, victim: str) -> None:
        """Resume it."""
        with suppress(DockerException):
            self._api.unpause(victim)

    def disconnect(self, victim: str) -> tuple[str, dict[str, Any]] | None:
        """Take it off its networks."""
        with suppress(DockerException):
            networks = self._api.inspect_container(victim)["NetworkSettings"]["Networks"]
            for each in networks.values():
                self._api.disconnect_container_from_network(victim, each["NetworkID"])
            return victim, networks
        return None

    def reconnect(self, networks: tuple[str, dict[str, Any]] | None) -> None:
        """Put it back on its networks, at its addresses."""
        if networks is None:
            return
        victim, former = networks
        for each in former.values():
            with suppress(DockerException):
                self._api.connect_container_to_network(
                    victim,
                    each["NetworkID"],
                    ipv4_address=(each.get("IPAMConfig") or {}).get("IPv4Address"),
                    aliases=each.get("Aliases"),
                )

    def left_over(self, folder: Path) -> list[str]:
        """Return containers and networks of the run, and processes that know its folder."""
        labelled = {"label": f"{RUN_LABEL}={self._testbed.run}"}
        left = [
            f"container {each['Id'][:12]}"
            for each in self._api.containers(all=True, filters=labelled)
        ]
        left += [f"network {each['Id'][:12]}" for each in self._api.networks(filters=labelled)]
        assert self._client is not None
        self._client.close()
        return left + [f"process {pid}" for pid in _processes_of(folder)]
