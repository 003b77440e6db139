"""The Docker engine, as the launcher needs it: images, networks and containers, all labelled."""

from __future__ import annotations

import hashlib
import json
import subprocess
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

import testbed
from fogveil.errors import InputError, SurroundingsError
from testbed.containers.layout import Layout, Network

LABEL = "org.fogveil.run"
"""What belongs to a run carries its name under this label, and nothing else is ever removed."""
FOLDER_LABEL = "org.fogveil.folder"
SOURCE_LABEL = "org.fogveil.source"
PROVIDER, TESTBED, MOSQUITTO = "fogveil-provider", "fogveil-testbed", "eclipse-mosquitto:2"
"""The images: ours by the stage of the Dockerfile that makes them, and the public broker."""
ROOT = Path(testbed.__file__).parent.parent
MADE_OF = {
    PROVIDER: ("Dockerfile", "constraints.txt", "broker", "proto/fogveil", "provider_node"),
    TESTBED: (
        *("Dockerfile", "constraints.txt", "pyproject.toml"),
        *("agent", "broker", "proto/fogveil", "provider_node", "testbed"),
    ),
}
"""Files and folders of the checkout; who changes one of them gets a new image."""
INSIDE = "/participant"
"""Where a participant's folder is in its container."""
BLOCKS = IPv4Network("10.208.0.0/12")
BLOCK_PREFIX = 20
ATTEMPTS = 8
REMOVE_WITHIN = 20.0
SAME = {"net.ipv4.ip_forward": "0"}
"""Who is on several networks carries nothing from one to another."""


class Mount(NamedTuple):
    """A participant's own folder, and the user to whom it belongs."""

    folder: Path
    user: tuple[int, int]


class Engine:
    """A connection to the engine; everything that it makes is of one run."""

    def __init__(self, run: str = "", folder: Path | None = None) -> None:
        self._labels = {LABEL: run, FOLDER_LABEL: str(folder.absolute() if folder else "")}
        self._run = run
        with told("Docker cannot be used"):
            self._client = docker.from_env()
            self.api: Any = self._client.api
            self.api.ping()

    def close(self) -> None:
        """Leave."""
        self._client.close()

    # --- images ----------------------------------------------------------------------------------

    def provide(self, image: str, say: Callable[[str], None]) -> None:
        """Build an image of ours unless it is there and of this very source."""
        source = source_digest(image)
        try:
            labels = self.api.inspect_image(image)["Config"]["Labels"] or {}
        except NotFound:
            labels = {}
        if source is None:
            if not labels:
                raise InputError(
                    f"the image {image} is not there, and neither is the Dockerfile that makes it: "
                    "run this from a checkout"
                )
            return
        if labels.get(SOURCE_LABEL) == source:
            return
        say(f"building the image {image} (minutes once, seconds when only the code has changed)")
        target = image.removeprefix("fogveil-")
        with told(f"the image {image} cannot be built"):
            for line in self.api.build(
                path=str(ROOT),
                tag=image,
                target=target,
                buildargs={"SOURCE": source},
                rm=True,
                forcerm=True,
                decode=True,
            ):
                if "error" in line:
                    raise SurroundingsError(f"the image {image} cannot be built: {line['error']}")
                text = line.get("stream", "").strip()
                if text.startswith("Step "):
                    say(f"  {text[:100]}")

    def fetch(self, image: str, say: Callable[[str], None]) -> None:
        """Pull a public image unless it is there."""
        try:
            self.api.inspect_image(image)
        except NotFound:
            say(f"pulling the image {image}")
            with told(f"the image {image} cannot be pulled"):
                self.api.pull(image)

    # --- networks --------------------------------------------------------------------------------

    def lay_out(self, make: Callable[[IPv4Network], Layout]) -> Layout:
        """Create the networks of a testbed, in a block of addresses that nobody uses here."""
        random = Random()  # noqa: S311 (no key)
        for _ in range(ATTEMPTS):
            layout = make(self._free_block(random))
            try:
                for network in layout.networks:
                    self._create_network(network)
            except APIError as error:
                self.remove_networks()
                if "overlap" not in str(error):
                    raise SurroundingsError(
                        f"a network cannot be made: {error.explanation}"
                    ) from error
            else:
                return layout
        raise SurroundingsError(f"no free block of addresses was found in {BLOCKS}")

    def _free_block(self, random: Random) -> IPv4Network:
        taken = list(_routes())
        for network in self.api.networks():
            for config in (network.get("IPAM") or {}).get("Config") or ():
                subnet = ip_network(config.get("Subnet", "0.0.0.0/32"), strict=False)
                if isinstance(subnet, IPv4Network):
                    taken.append(subnet)
        free = [
            block
            for block in BLOCKS.subnets(new_prefix=BLOCK_PREFIX)
            if not any(map(block.overlaps, taken))
        ]
        if not free:
            raise SurroundingsError(f"all of {BLOCKS} is in use: run `fogveil down`")
        return random.choice(free)

    def _create_network(self, network: Network) -> None:
        pool = docker.types.IPAMPool(subnet=str(network.subnet), gateway=network.gateway)
        self.api.create_network(
            self.full_name(network.name),
            driver="bridge",
            internal=True,
            ipam=docker.types.IPAMConfig(pool_configs=[pool]),
            labels=self._labels,
            check_duplicate=True,
        )

    def full_name(self, name: str) -> str:
        """Return what a network or container of this run is called in the engine."""
        return f"fogveil-{self._run[:8]}-{name}"

    # --- containers ------------------------------------------------------------------------------

    def create(
        self, layout: Layout, name: str, image: str, command: list[str], mount: Mount
    ) -> str:
        """Create a container on its networks, with nothing to write to but its own folder."""
        service, (first, *others) = layout.service(name), layout.of(name)
        api, labels = self.api, {**self._labels, "org.fogveil.participant": name}
        made: str = api.create_container(
            image,
            command,
            name=self.full_name(service),
            hostname=service,
            user=f"{mount.user[0]}:{mount.user[1]}",
            working_dir=INSIDE,
            stdin_open=True,  # its end tells the participant that the launcher is gone
            labels=labels,
            host_config=api.create_host_config(
                binds={str(mount.folder.absolute()): {"bind": INSIDE, "mode": "rw"}},
                read_only=True,
                tmpfs={"/tmp": "size=16m,mode=1777,noexec,nosuid"},  # noqa: S108 (its own)
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                pids_limit=256,
                sysctls=SAME,
                network_mode=self.full_name(first.name),
            ),
            networking_config=api.create_networking_config(
                {
                    self.full_name(first.name): api.create_endpoint_config(
                        ipv4_address=first.address(name), aliases=[service]
                    )
                }
            ),
        )["Id"]
        for network in others:
            api.connect_container_to_network(
                made,
                self.full_name(network.name),
                ipv4_address=network.address(name),
                aliases=[service],
            )
        return made

    def events(self) -> Any:
        """Return what happens to the containers of this run: to go through, and to close."""
        return self.api.events(
            filters={"label": f"{LABEL}={self._run}", "type": "container"}, decode=True
        )

    # --- removing --------------------------------------------------------------------------------

    def remove(self) -> None:
        """Remove every container, volume and network of this run, whatever state it is in."""
        remove_run(self.api, self._run)

    def remove_networks(self) -> None:
        """Remove every network of this run."""
        for network in self.api.networks(filters={"label": f"{LABEL}={self._run}"}):
            self.api.remove_network(network["Id"])


class Contained:
    """A container that the launcher started, as `subprocess.Popen` shows a process."""

    def __init__(self, engine: Engine, made: str) -> None:
        self._api, self.made = engine.api, made
        self.returncode: int | None = None
        self.hung_up = False
        """Whether its streams have ended, as they do when it has."""
        self.stream: Any = self._api.attach_socket(
            made, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        )
        self._api.start(made)
        self.pid: int = self._api.inspect_container(made)["State"]["Pid"]

    def hang_up(self) -> None:
        """Close its streams, and the connection that carries them."""
        # The SDK keeps it there, and offers no other way to it.
        self.stream._response.close()  # noqa: SLF001

    def poll(self) -> int | None:
        """Return its exit code if it has ended."""
        if self.returncode is None and self.hung_up:
            with suppress(subprocess.TimeoutExpired):  # only the engine itself has hung up
                self.wait(1.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            try:
                self.returncode = self._api.wait(self.made, timeout=timeout)["StatusCode"]
            except NotFound:
                self.returncode = SurroundingsError.exit_code
            except (requests.exceptions.ConnectionError, requests.exceptions.ReadTimeout) as error:
                raise subprocess.TimeoutExpired(self.made, timeout or 0.0) from error
        return self.returncode

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal, if it still runs."""
        with suppress(APIError):  # it is paused, has ended, or somebody has removed it
            self._api.kill(self.made, signal=int(sig))

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(15)

    def kill(self) -> None:
        """Make it end, even if somebody has paused it."""
        with suppress(APIError):
            self._api.unpause(self.made)
        self.send_signal(9)

    def facts(self) -> list[str]:
        """Return its command line, environment, labels and mounts, as the engine shows them."""
        shown = self._api.inspect_container(self.made)
        config = shown["Config"]
        return [
            *(config["Cmd"] or ()),
            *(config["Env"] or ()),
            json.dumps(config["Labels"]),
            json.dumps(shown["Mounts"]),
        ]

    def mounts(self) -> list[str]:
        """Return what of the outside is mounted into it."""
        return [mount["Source"] for mount in self._api.inspect_container(self.made)["Mounts"]]

    def execute(self, command: list[str]) -> str:
        """Run a command in it, as its user, and return what that says on standard output."""
        running = self._api.exec_create(self.made, command, stderr=True)["Id"]
        out, said = self._api.exec_start(running, demux=True)
        code = self._api.exec_inspect(running)["ExitCode"]
        if code:
            raise SurroundingsError(f"a command in a container failed ({code}): {said!r}")
        return (out or b"").decode()


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn an error of the engine into one sentence."""
    try:
        yield
    except APIError as error:
        raise SurroundingsError(f"{what}: {error.explanation or error}") from error
    except (DockerException, requests.exceptions.RequestException, OSError) as error:
        raise SurroundingsError(
            f"{what}: is the engine running, and may you use it? ({_reason(error)})"
        ) from error


def _reason(error: BaseException) -> str:
    while error.__context__ is not None and not isinstance(error, OSError):
        error = error.__context__
    return getattr(error, "strerror", None) or str(error)


def source_digest(image: str) -> str | None:
    """Return what tells one state of an image's source from another; None without a source."""
    if not (ROOT / "Dockerfile").is_file():
        return None
    paths: list[Path] = []
    for name in MADE_OF[image]:
        place = ROOT / name
        paths += [place] if place.is_file() else filter(Path.is_file, place.rglob("*"))
    digest = hashlib.sha256()
    for path in sorted(paths):
        if "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(ROOT)}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _routes() -> Iterator[IPv4Network]:
    """Yield the networks that this machine has routes to, the whole world excepted."""
    try:
        lines = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return
    for line in lines:
        words = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(words[at]), "little") for at in (1, 7))
        if mask:
            yield IPv4Network((address, mask.bit_count()), strict=False)


def remove_run(api: Any, run: str) -> None:
    """Remove all that carries a run's label: containers with their volumes, then networks."""
    mine = {"label": f"{LABEL}={run}"}
    deadline = time.monotonic() + REMOVE_WITHIN
    while True:
        try:
            for container in api.containers(all=True, filters=mine):
                _remove_container(api, container["Id"])
            for network in api.networks(filters=mine):
                api.remove_network(network["Id"])
        except NotFound:
            continue  # somebody else removes as well
        except (APIError, requests.exceptions.RequestException) as error:
            if time.monotonic() > deadline:
                raise SurroundingsError(
                    f"what is left of run {run[:8]} cannot be removed: {error}; "
                    "`fogveil down` tries again"
                ) from error
            time.sleep(0.2)
        else:
            return


def _remove_container(api: Any, made: str) -> None:
    with suppress(APIError):  # most often it is not paused
        api.unpause(made)
    api.remove_container(made, force=True, v=True)


def runs_left(api: Any) -> dict[str, str]:
    """Return the runs of which anything is there, each with its folder."""
    found: dict[str, str] = {}
    things = [*api.containers(all=True, filters={"label": LABEL})]
    things += api.networks(filters={"label": LABEL})
    for thing in things:
        labels = thing["Labels"]
        found[labels[LABEL]] = labels.get(FOLDER_LABEL, "")
    return found
