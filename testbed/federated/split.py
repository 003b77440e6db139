"""Splitting a scenario: each participant's private configuration holds its own share of it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import agent.policies as policies
from broker.starting import check_choice
from fogveil.disclosure import Level
from fogveil.errors import InputError
from fogveil.identity import AGENT, AUDITOR, Credentials, Identity
from fogveil.settings import write_settings
from provider_node.membership import Group
from testbed.federated.apart import users_of
from testbed.federated.declared import declared
from testbed.federated.identities import Mint
from testbed.federated.windows import LARGEST_WINDOW, Seats
from testbed.world import World

CLOCK, BROKER = "clock", "broker"
"""Users without a name, far from those that have one; a few hundred for each run."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Training:
    """An agent to train, episode after episode, until it has enough."""

    agent: str
    hyperparameters: dict[str, Any]
    every: int
    """Episodes between checkpoints."""
    done: int = 0
    """Episodes trained before."""
    checkpoint: Path | None = None
    """Where they ended."""


@dataclass(frozen=True)
class Plan:
    """What a federated testbed is brought up for."""

    policies: tuple[str, ...] = ()
    """One episode each, and so for every draw."""
    draws: tuple[int, ...] = (0,)
    """Which numbers chance draws: equal ones give equal workloads."""
    training: Training | None = None
    broker: str = "auto"
    window: int = 0
    """Decisions per window; 1 is lockstep, 0 as many as the policy allows."""
    source_processes: int = 1
    speed: float | None = None
    """Simulated time per second of the wall clock; None is as fast as it goes."""
    patience: float = 60.0
    """Seconds in which everybody must have joined."""
    record: bool = False
    """Whether every participant records what crosses its gRPC channels, byte for byte."""
    secure: bool = True
    """Whether identities are minted and every channel proves and encrypts by them."""
    separate_users: bool = True
    """Whether each participant runs as a user of its own, where the launcher is root."""
    ports: tuple[int, ...] = ()
    """Where to listen: the clock, then the providers in their order; else on free ports."""
    contained: bool = False
    """Whether every participant is a container, in place of a process."""

    @property
    def mode(self) -> str:
        """What records call this way of running."""
        return "docker" if self.contained else "federated"

    @property
    def episodes(self) -> list[tuple[str, int]]:
        """The policy and the draw of each episode."""
        return [(policy, draw) for draw in self.draws for policy in self.policies]


def check(plan: Plan, world: World) -> None:
    """Refuse what cannot run, before anything is started."""
    if not 0 <= plan.window <= LARGEST_WINDOW:
        raise InputError(f"--window {plan.window}: expected 0 to {LARGEST_WINDOW} decisions")
    if not 1 <= plan.source_processes <= len(world.clusters):
        raise InputError(
            f"--source-processes {plan.source_processes}: expected 1 to {len(world.clusters)}, "
            "the number of IoT clusters"
        )
    if plan.speed is not None and not 0 < plan.speed < float("inf"):
        raise InputError(f"--speed {plan.speed:g}: expected a positive number")
    if world.agent.disclosed is Level.TOTAL:
        if not plan.secure:
            raise InputError(
                "disclosure level 'total' needs identities, by which the providers sign their "
                "keys: leave --insecure out, or choose --disclosure count"
            )
        Group("", (*world.nodes, world.cloud), world.cloud)
    names = [*seats(world, plan.source_processes).all, CLOCK, BROKER]
    for name in set(names):
        if names.count(name) > 1:
            raise InputError(f"two participants would be called {name}: give the node another name")
    check_choice(plan.broker)
    for spec in plan.policies:
        declared(spec, world)


def seats(world: World, source_processes: int) -> Seats:
    """Return who takes part."""
    names = ["sources"]
    if source_processes > 1:
        names = [f"sources-{number}" for number in range(1, source_processes + 1)]
    return Seats(tuple(names), world.nodes, world.cloud)


class Site:
    """Where participants listen: on loopback, on ports that are free or were asked for."""

    lifeline = True
    """Whether participants end with their standard input."""
    becomes_user = True
    """Whether a participant itself becomes its user; else it is one from the beginning."""

    def __init__(self, ports: Mapping[str, int] | None = None) -> None:
        self._ports = ports or {}

    def listen(self, name: str) -> str:
        """Return where a participant listens; port 0 is a free one."""
        return f"{LOOPBACK}:{self._ports.get(name, 0)}"

    def awaits(self, _name: str) -> list[str]:
        """Return who must be there before a participant begins, where all are started at once."""
        return []


def local_site(plan: Plan, seats: Seats) -> Site:
    """Return this machine, with the ports that were asked for."""
    names = (CLOCK, *seats.fogs, seats.cloud)
    return Site(dict(zip(names, plan.ports, strict=True)) if plan.ports else None)


class Split:
    """Writes the participants' configurations into folders of their own."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        folder: Path,
        run: str,
        site: Site | None = None,
        users: Mapping[str, int] | None = None,
    ) -> None:
        self._world, self._plan, self._folder = world, plan, folder
        self.seats = seats(world, plan.source_processes)
        self.site = site or local_site(plan, self.seats)
        self._common: dict[str, Any] = {
            "run": run,
            "lifeline": self.site.lifeline,
            "secure": plan.secure,
            "record": plan.record,
        }
        self.broker = ""
        """Its address, once it is up."""
        self.own_broker = False
        """Whether it has an identity of this run."""
        self.mint = Mint(run) if plan.secure else None
        if users is None:
            names = [*self.seats.all, CLOCK, BROKER]
            users = users_of(run, names) if plan.separate_users else {}
        self.users = users
        self._clusters: dict[str, list[int]] = {name: [] for name in self.seats.sources}
        for cluster in range(len(world.clusters)):
            self._clusters[self.seats.sources[cluster % len(self._clusters)]].append(cluster)

    def folder_of(self, name: str) -> Path:
        """Return a participant's own folder."""
        return self._folder / quote(name, safe="")

    def _write(self, name: str, clock: str, **own: Any) -> Path:
        folder = self.folder_of(name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.identify(name, self.seats.role_of(name) or name, folder / "identity")
        user = self.users.get(name)
        path = write_settings(
            folder,
            name=name,
            clock=clock,
            broker="" if name == CLOCK else self.broker,  # which has no business there
            own_broker=self.own_broker,
            own=own,
            user=user if self.site.becomes_user else None,
            awaits=self.site.awaits(name),
            **self._common,
        )
        self.hand_over(name)
        return path

    def hand_over(self, name: str) -> None:
        """Let a participant's folder belong to its user, where it has one of its own."""
        user, folder = self.users.get(name), self.folder_of(name)
        if user is not None:
            for owned in (folder, *folder.rglob("*")):
                os.chown(owned, user, user)

    def identify(self, name: str, role: str, folder: Path) -> Credentials | None:
        """Mint an identity, where the run has any."""
        if self.mint is None:
            return None
        return self.mint.issue(Identity(self._common["run"], role, name), folder)

    def clock(self) -> Path:
        """Write the clock's: who takes part, and nothing about them."""
        plan, seats = self._plan, self.seats
        return self._write(
            CLOCK,
            self.site.listen(CLOCK),
            sources=seats.sources,
            fogs=seats.fogs,
            cloud=seats.cloud,
            draws=None if plan.training else [draw for _, draw in plan.episodes],
            first_draw=plan.training.done + 1 if plan.training else 0,
            speed=plan.speed,
            patience=plan.patience,
        )

    def provider(self, name: str, clock: str) -> Path:
        """Write a provider's: its own resources, the applications, whom results go to."""
        owner = {c: name for name, clusters in self._clusters.items() for c in clusters}
        total = None
        if self._world.agent.disclosed is Level.TOTAL:
            seats = self.seats
            total = {"members": [*seats.fogs, seats.cloud], "cloud": seats.cloud}
        return self._write(
            name,
            clock,
            provider=self._world.projection(name),
            total=total,
            owners=[owner[cluster] for cluster in range(len(owner))],
            fogs=list(self.seats.fogs) if name == self.seats.cloud else [],
            listen=self.site.listen(name),
        )

    def sources(self, name: str, clock: str) -> Path:
        """Write a sources process's: when its clusters emit what."""
        return self._write(
            name,
            clock,
            sources=self._world.projection("sources"),
            clusters=self._clusters[name],
            providers=[*self.seats.fogs, self.seats.cloud],
        )

    def _own_policies(self) -> list[str]:
        """Put the files of policies that are not ours into the agent's folder.

        Each has a place of its own: trained agents are all in files of the same name.
        """
        specs: list[str] = []
        places: dict[Path, str] = {}
        for spec, _ in self._plan.episodes:
            path = policies.file_of(spec)
            if path is None:
                specs.append(spec)
                continue
            place = places.setdefault(path, f"policy-{len(places) + 1}")
            copied = f"{place}/{copy_whole(path, self.folder_of(AGENT) / place)}"
            specs.append(copied if spec.endswith(".npz") else f"{copied}:{spec.rpartition(':')[2]}")
        return specs

    def agent(self, clock: str, providers: Mapping[str, str]) -> Path:
        """Write the agent's: the public facts, and where the providers' boundaries are."""
        plan = self._plan
        training = None
        if plan.training:
            training = {
                "agent": plan.training.agent,
                "hyperparameters": plan.training.hyperparameters,
                "every": plan.training.every,
            }
            if plan.training.checkpoint:
                copy_whole(plan.training.checkpoint, self.folder_of(AGENT))
        return self._write(
            AGENT,
            clock,
            view=self._world.projection("agent"),
            providers=dict(providers),
            sources=self.seats.sources,
            plan=self._own_policies(),
            train=training,
            window=plan.window,
        )

    def auditor(self, folder: Path, addresses: Mapping[str, str]) -> None:
        """Mint the auditor's identity, with the words for grpcurl to use it at each provider."""
        made = self.identify(AUDITOR, AUDITOR, folder)
        if made is None:
            return
        lines = []
        for name in (*self.seats.fogs, self.seats.cloud):
            provider = Identity(self._common["run"], self.seats.role_of(name) or name, name)
            words = ["grpcurl", "-cacert", made.authority, "-cert", made.certificate]
            words += ["-key", made.key, "-authority", provider.host, addresses[name], "list"]
            lines.append(f"# {name}\n{shlex.join(map(str, words))}\n")
        (folder / "grpcurl.txt").write_text("".join(lines), encoding="utf-8")


def copy_whole(path: Path, folder: Path) -> str:
    """Copy a file into a folder so that it is whole or not there; return its name there."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = folder / f"{path.name}.part"
    shutil.copy(path, part)
    part.replace(folder / path.name)
    return path.name
