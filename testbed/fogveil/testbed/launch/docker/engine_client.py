"""The Docker engine as a launcher needs it: networks and containers, all labelled by their run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from fogveil.core.errors import InfrastructureError
from fogveil.testbed.launch.docker.layout import DockerNetwork, Layout

RUN_LABEL = "org.fogveil.run"
"""Whatever belongs to a run carries its name under this label; nothing else is ever removed."""
FOLDER_LABEL = "org.fogveil.folder"
PARTICIPANT_LABEL = "org.fogveil.participant"
PARTICIPANT_FOLDER = "/participant"
"""Where a participant's folder is mounted in its container."""
BLOCKS = IPv4Network("10.208.0.0/12")
BLOCK_PREFIX = 20
ATTEMPTS = 8
"""Blocks of addresses that are tried before giving up: another testbed may take one meanwhile."""
REMOVE_WITHIN = 20.0
TMPFS = {"/tmp": "size=16m,mode=1777,noexec,nosuid"}  # noqa: S108 (the container's own)
PIDS_LIMIT = 256
NO_FORWARDING = {"net.ipv4.ip_forward": "0"}
"""A container on several networks passes nothing from one to another."""


class ContainerSpec(NamedTuple):
    """What a container runs, as whom, and the only folder that it sees."""

    name: str
    image: str
    command: list[str]
    folder: Path
    user: tuple[int, int]
    """User and group."""


class EngineClient:
    """A connection to the engine; everything that it creates belongs to one run."""

    def __init__(self, run: str = "", folder: Path | None = None) -> None:
        self._run = run
        self._labels = {RUN_LABEL: run, FOLDER_LABEL: str(folder.absolute() if folder else "")}
        with engine_errors("Docker cannot be used"):
            self._client = docker.from_env()
            self.api: Any = self._client.api
            self.api.ping()

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    # --- networks --------------------------------------------------------------------------------

    def create_networks(self, plan: Callable[[IPv4Network], Layout]) -> Layout:
        """Create the networks of a testbed, in a block of addresses that nobody uses here."""
        random = Random()  # noqa: S311 (no key)
        for _ in range(ATTEMPTS):
            layout = plan(self._free_block(random))
            try:
                for network in layout.networks:
                    self._create_network(network)
            except APIError as error:
                self._remove_networks()
                if "overlap" not in str(error):
                    raise InfrastructureError(
                        f"a network cannot be created: {error.explanation}"
                    ) from error
            else:
                return layout
        raise InfrastructureError(f"no free block of addresses was found in {BLOCKS}")

    def _free_block(self, random: Random) -> IPv4Network:
        used = list(_routes())
        for network in self.api.networks():
            for config in (network.get("IPAM") or {}).get("Config") or ():
                subnet = ip_network(config.get("Subnet", "0.0.0.0/32"), strict=False)
                if isinstance(subnet, IPv4Network):
                    used.append(subnet)
        free = [
            block
            for block in BLOCKS.subnets(new_prefix=BLOCK_PREFIX)
            if not any(map(block.overlaps, used))
        ]
        if not free:
            raise InfrastructureError(f"all of {BLOCKS} is in use: run `fogveil down`")
        return random.choice(free)

    def _create_network(self, network: DockerNetwork) -> None:
        pool = docker.types.IPAMPool(subnet=str(network.subnet), gateway=network.gateway)
        self.api.create_network(
            self._full_name(network.name),
            driver="bridge",
            internal=True,
            ipam=docker.types.IPAMConfig(pool_configs=[pool]),
            labels=self._labels,
            check_duplicate=True,
        )

    def _remove_networks(self) -> None:
        for network in self.api.networks(filters={"label": f"{RUN_LABEL}={self._run}"}):
            self.api.remove_network(network["Id"])

    def _full_name(self, name: str) -> str:
        """Return what a network or container of this run is called in the engine."""
        return f"fogveil-{self._run[:8]}-{name}"

    # --- containers ------------------------------------------------------------------------------

    def create_container(self, layout: Layout, spec: ContainerSpec) -> str:
        """Create a container on its networks, which can write to its own folder only."""
        service, (first, *others) = layout.service(spec.name), layout.of(spec.name)
        api = self.api
        container: str = api.create_container(
            spec.image,
            spec.command,
            name=self._full_name(service),
            hostname=service,
            user=f"{spec.user[0]}:{spec.user[1]}",
            working_dir=PARTICIPANT_FOLDER,
            stdin_open=True,  # its end tells the participant that the launcher is gone
            labels={**self._labels, PARTICIPANT_LABEL: spec.name},
            host_config=api.create_host_config(
                binds={str(spec.folder.absolute()): {"bind": PARTICIPANT_FOLDER, "mode": "rw"}},
                read_only=True,
                tmpfs=TMPFS,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                pids_limit=PIDS_LIMIT,
                sysctls=NO_FORWARDING,
                network_mode=self._full_name(first.name),
            ),
            networking_config=api.create_networking_config(
                {
                    self._full_name(first.name): api.create_endpoint_config(
                        ipv4_address=first.address(spec.name), aliases=[service]
                    )
                }
            ),
        )["Id"]
        for network in others:
            api.connect_container_to_network(
                container,
                self._full_name(network.name),
                ipv4_address=network.address(spec.name),
                aliases=[service],
            )
        return container

    def remove_container(self, container: str) -> None:
        """Remove a container, whatever state it is in."""
        _remove_container(self.api, container)

    def events(self) -> Any:
        """Return a stream of what happens to the containers of this run: iterate, then close it."""
        return self.api.events(
            filters={"label": f"{RUN_LABEL}={self._run}", "type": "container"}, decode=True
        )

    def remove(self) -> None:
        """Remove every container, volume and network of this run, whatever state it is in."""
        remove_run(self.api, self._run)


@contextmanager
def engine_errors(problem: str) -> Iterator[None]:
    """Turn an error of the engine into one sentence that begins with the problem."""
    try:
        yield
    except APIError as error:
        raise InfrastructureError(f"{problem}: {error.explanation or error}") from error
    except (DockerException, requests.exceptions.RequestException, OSError) as error:
        raise InfrastructureError(
            f"{problem}: is the engine running, and may you use it? ({_reason(error)})"
        ) from error


def _reason(error: BaseException) -> str:
    while error.__context__ is not None and not isinstance(error, OSError):
        error = error.__context__
    return getattr(error, "strerror", None) or str(error)


def _routes() -> Iterator[IPv4Network]:
    """Yield the networks that this machine has routes to, except the default route."""
    try:
        lines = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[at]), "little") for at in (1, 7))
        if mask:
            yield IPv4Network((address, mask.bit_count()), strict=False)


def remove_run(api: Any, run: str) -> None:
    """Remove all that carries a run's label: containers with their volumes, then networks."""
    labelled = {"label": f"{RUN_LABEL}={run}"}
    deadline = time.monotonic() + REMOVE_WITHIN
    while True:
        try:
            for container in api.containers(all=True, filters=labelled):
                _remove_container(api, container["Id"])
            for network in api.networks(filters=labelled):
                api.remove_network(network["Id"])
        except NotFound:
            continue  # another process removes them as well
        except (APIError, requests.exceptions.RequestException) as error:
            if time.monotonic() > deadline:
                raise InfrastructureError(
                    f"what is left of run {run[:8]} cannot be removed: {error}; "
                    "`fogveil down` tries again"
                ) from error
            time.sleep(0.2)
        else:
            return


def _remove_container(api: Any, container: str) -> None:
    with suppress(APIError):  # most often it is not paused
        api.unpause(container)
    api.remove_container(container, force=True, v=True)


def leftover_runs(api: Any) -> dict[str, str]:
    """Return the runs of which containers or networks exist, each with its folder."""
    resources = [*api.containers(all=True, filters={"label": RUN_LABEL})]
    resources += api.networks(filters={"label": RUN_LABEL})
    return {
        resource["Labels"][RUN_LABEL]: resource["Labels"].get(FOLDER_LABEL, "")
        for resource in resources
    }
