"""Which container is on which network, under which address: the same for compose and `up --docker`.

Every provider has two networks of its own, so no two providers share one:

    boundary-fog-1   fog-1 and the agent: the only place where the two meet
    relay-fog-1      fog-1, the clock and the broker: whom it dials

Everybody else who dials the clock and the broker has a relay network as well. All are internal,
without a way out, with a small subnet each: Docker's own pools would be exhausted near 30.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network
from urllib.parse import quote

from fogveil.errors import InputError
from fogveil.identity import AGENT, BROKER, CLOCK
from testbed.federated.split import Site
from testbed.federated.windows import Seats

BOUNDARY_PORT, CLOCK_PORT, BROKER_PORT = 5001, 5000, 8883
PORTS = {CLOCK: CLOCK_PORT, BROKER: BROKER_PORT}
EVERYWHERE = "0.0.0.0"  # noqa: S104 (in a container: on networks that hold whom it serves)
BLOCK = IPv4Network("10.213.0.0/20")
"""From where a compose file takes its subnets."""
PREFIX = 29
"""Six hosts: the gateway, and three at most of ours."""


@dataclass(frozen=True)
class Network:
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

    def __init__(self, seats: Seats, block: IPv4Network = BLOCK, *, lifeline: bool = True) -> None:
        super().__init__()
        self.seats, self.block, self.lifeline = seats, block, lifeline
        self.providers = (*seats.fogs, seats.cloud)
        self._services = _services((BROKER, CLOCK, *seats.sources, *self.providers, AGENT))
        wanted: list[tuple[str, tuple[str, ...]]] = [
            (f"boundary-{self.service(name)}", (name, AGENT)) for name in self.providers
        ]
        wanted += [
            (f"relay-{self.service(name)}", (name, CLOCK, BROKER))
            for name in (*self.providers, *seats.sources, AGENT)
        ]
        if len(wanted) > 2 ** (PREFIX - block.prefixlen):
            raise InputError(
                f"{len(wanted)} networks do not fit into {block}: give a larger --subnet"
            )
        subnets = block.subnets(new_prefix=PREFIX)
        self.networks = tuple(
            Network(name, subnet, members)
            for (name, members), subnet in zip(wanted, subnets, strict=False)
        )

    @property
    def members(self) -> tuple[str, ...]:
        """All containers that run."""
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

    def of(self, name: str) -> list[Network]:
        """Return the networks that somebody is on, its own first."""
        return [network for network in self.networks if name in network.members]

    def home(self, name: str) -> Network:
        """Return the network where somebody is dialled."""
        if name in self.providers:
            return next(n for n in self.of(name) if n.members == (name, AGENT))
        return self.of(name)[0]

    def port(self, name: str) -> int:
        """Return the one port on which somebody listens."""
        return PORTS.get(name, BOUNDARY_PORT)

    def listen(self, name: str) -> str:
        """Return where somebody listens: a provider on the boundary network alone."""
        host = self.home(name).address(name) if name in self.providers else EVERYWHERE
        return f"{host}:{self.port(name)}"

    def dial(self, name: str) -> str:
        """Return where other participants find somebody."""
        return f"{self.service(name)}:{self.port(name)}"

    def reached_at(self, name: str) -> str:
        """Return where somebody is reached from the machine on which the engine runs."""
        return f"{self.home(name).address(name)}:{self.port(name)}"

    def awaits(self, name: str) -> list[str]:
        """Return whom a participant dials: all containers are started at once."""
        if name == CLOCK:
            return []
        return [self.dial(BROKER), self.dial(CLOCK)]


def _services(names: tuple[str, ...]) -> dict[str, str]:
    """Give everybody a name that a host may have: its own where that will do.

    >>> _services(("fog-1", "Fog 1"))
    {'fog-1': 'fog-1', 'Fog 1': 'fog-1-2'}
    """
    found: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        plain = Layout.slug(name)
        found[name] = plain if plain not in found.values() else f"{plain}-{number}"
    return found
