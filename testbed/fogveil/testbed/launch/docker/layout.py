"""Which container is on which network, under which address: the same for compose and `up --docker`.

Every provider has two networks of its own, so no two providers share one:

    boundary-fog-1   fog-1 and the agent: the only place where the two meet
    relay-fog-1      fog-1, the clock and the broker: whom it dials

Every other participant that dials the clock and the broker has a relay network as well. All
networks are internal, without a way out, and have a small subnet each: Docker's own address pools
would be exhausted near 30 networks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network
from urllib.parse import quote

from fogveil.core.errors import InputError
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.participant_config import Site

BOUNDARY_PORT, CLOCK_PORT, BROKER_PORT = 5001, 5000, 8883
PORTS = {CLOCK: CLOCK_PORT, BROKER: BROKER_PORT}
EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 (all of the container's networks hold only its clients)
BLOCK = IPv4Network("10.213.0.0/20")
"""The addresses that a compose file uses unless it is told otherwise."""
PREFIX = 29
"""Six hosts: the gateway, and up to three participants."""


@dataclass(frozen=True)
class DockerNetwork:
    """A network and who is on it."""

    name: str
    subnet: IPv4Network
    members: tuple[str, ...]

    @property
    def gateway(self) -> str:
        """The engine's own address there."""
        return str(self.subnet[1])

    def address(self, name: str) -> str:
        """Return a member's address there."""
        return str(self.subnet[2 + self.members.index(name)])


class Layout(Site):
    """Names, networks and addresses of the containers of one testbed."""

    becomes_user = False
    namespaces = "containers"

    def __init__(
        self, roster: Roster, block: IPv4Network = BLOCK, *, lifeline: bool = True
    ) -> None:
        super().__init__()
        self.roster, self.block, self.lifeline = roster, block, lifeline
        self.providers = (*roster.fogs, roster.cloud)
        self._services = _services((BROKER, CLOCK, *roster.sources, *self.providers, AGENT))
        members = {f"boundary-{self.service(name)}": (name, AGENT) for name in self.providers}
        relays = {
            f"relay-{self.service(name)}": (name, CLOCK, BROKER)
            for name in (*self.providers, *roster.sources, AGENT)
        }
        members_of: dict[str, tuple[str, ...]] = {**members, **relays}
        if len(members_of) > 2 ** (PREFIX - block.prefixlen):
            raise InputError(
                f"{len(members_of)} networks do not fit into {block}: give a larger --subnet"
            )
        subnets = block.subnets(new_prefix=PREFIX)
        self.networks = tuple(
            DockerNetwork(name, subnet, members)
            for (name, members), subnet in zip(members_of.items(), subnets, strict=False)
        )

    @property
    def members(self) -> tuple[str, ...]:
        """Everybody who has a container."""
        return tuple(self._services)

    def service(self, name: str) -> str:
        """Return a participant's name as a host."""
        return self._services[name]

    @staticmethod
    def folder(name: str) -> str:
        """Return what a participant's folder is called."""
        return quote(name, safe="")

    @staticmethod
    def slug(name: str) -> str:
        """Return a name as hosts and projects may have it."""
        return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "node"

    def of(self, name: str) -> list[DockerNetwork]:
        """Return the networks that a participant is on, its own first."""
        return [network for network in self.networks if name in network.members]

    def home(self, name: str) -> DockerNetwork:
        """Return the network where a participant is dialled."""
        if name in self.providers:
            return next(n for n in self.of(name) if n.members == (name, AGENT))
        return self.of(name)[0]

    def port(self, name: str) -> int:
        """Return the one port on which a participant listens."""
        return PORTS.get(name, BOUNDARY_PORT)

    def listen(self, name: str) -> str:
        """Return where a participant listens: a provider on its boundary network alone."""
        host = self.home(name).address(name) if name in self.providers else EVERY_INTERFACE
        return f"{host}:{self.port(name)}"

    def dial(self, name: str) -> str:
        """Return where other participants dial this one."""
        return f"{self.service(name)}:{self.port(name)}"

    def awaits(self, name: str) -> list[str]:
        """Return whom a participant waits for before it begins: all are started at once."""
        if name == CLOCK:
            return []
        return [self.dial(BROKER), self.dial(CLOCK)]


def _services(names: tuple[str, ...]) -> dict[str, str]:
    """Return a valid and unique host name for everybody, close to their own.

    >>> _services(("fog-1", "Fog 1"))
    {'fog-1': 'fog-1', 'Fog 1': 'fog-1-2'}
    """
    services: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        plain = Layout.slug(name)
        services[name] = plain if plain not in services.values() else f"{plain}-{number}"
    return services
