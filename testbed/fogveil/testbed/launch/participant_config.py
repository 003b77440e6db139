"""What each participant is told: its own share of the scenario, in a private configuration."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fogveil.agent.policies as policies
from fogveil.agent.inbox import EmissionRules
from fogveil.agent.learning.adaptation import Adaptation, AdaptationRequest, adapting_class
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.learning.transfer import Transfer
from fogveil.agent.policy_files import read_policy_files
from fogveil.agent.settings import AdaptationSettings, AgentSettings, TrainingSettings
from fogveil.broker.launcher import check_choice
from fogveil.clock.settings import ClockSettings
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.core.files import give_to
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import AGENT, AUDITOR, BROKER, CLOCK, Identity
from fogveil.protocol.limits import LARGEST_WINDOW
from fogveil.protocol.roster import Roster
from fogveil.protocol.settings import CONFIG, Settings, read_settings, write_settings
from fogveil.provider_node.membership import TotalGroup
from fogveil.provider_node.settings import ProviderSettings, TotalMembers
from fogveil.sources.settings import SourcesSettings
from fogveil.testbed.launch.certificates import Mint
from fogveil.testbed.launch.policy_requirements import PolicyRequirements, requirements_of
from fogveil.testbed.launch.process_environment import users_of
from fogveil.testbed.launch.socket_folders import SocketFolders
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.scenario.world import World

LOOPBACK = "127.0.0.1"
UNIX = "unix:"
"""How a gRPC address begins that is the path of a Unix socket."""

Interpose = Callable[[str, str, str], str]
"""Returns the address at which a caller is told to dial a callee, which listens at another one."""


@dataclass(frozen=True)
class Training:
    """An agent to train, episode after episode, until its schedule is complete."""

    agent: str
    hyperparameters: dict[str, Any]
    every: int
    """Episodes between checkpoints."""
    done: int = 0
    """Episodes trained before."""
    checkpoint: Path | None = None
    """The state after those episodes."""
    transfer: Transfer | None = None
    """The earlier agent that it starts from."""


@dataclass(frozen=True)
class Plan:
    """What a federated testbed is launched for, and how."""

    policies: tuple[str, ...] = ()
    """Policies to run: one episode each, for every draw."""
    draws: tuple[int, ...] = (0,)
    """Draws of the scenario's randomness: equal ones give equal workloads."""
    training: Training | None = None
    adaptation: AdaptationRequest | None = None
    """How the agents of the policies go on learning; None: they act as they were trained."""
    broker: str = "auto"
    window: int = 0
    """Decisions per window; 1 is lockstep, 0 as many as the policy allows."""
    source_processes: int = 1
    speed: float | None = None
    """Simulated time per second of the wall clock; None is as fast as it goes."""
    paced: bool = False
    """Whether the launcher paces the clock, which is held until it is told to go on."""
    patience: float = 180.0
    """Seconds in which everybody must have joined."""
    record: bool = False
    """Whether every participant records what crosses its channels, byte for byte."""
    secure: bool = True
    """Whether the run has identities, and mutual TLS on every channel."""
    separate_users: bool = True
    """Whether each participant is enclosed in namespaces, and under root runs as a user of its own,
    where the system allows it. Else they share this machine, for tests that disturb them."""
    ports: tuple[int, ...] = ()
    """Ports of the clock and of the providers in their order; free ones if empty."""
    contained: bool = False
    """Whether every participant is a container, in place of a process."""
    recovers: bool = False
    """Whether the run goes on after a loss: who is lost is started again."""
    late_after: float = 30.0
    """Seconds after which the agent of such a run awaits a provider's count no longer."""
    pads: bool = True
    """Whether providers send messages of public sizes; without, benchmarks see what that costs."""
    product: Path | None = None
    """A copy of the participants' packages to run them from; None is the installation."""

    @property
    def mode(self) -> str:
        """The way of running, as records name it."""
        return "docker" if self.contained else "federated"

    @property
    def episodes(self) -> list[tuple[str, int]]:
        """The policy and the draw of each episode."""
        return [(policy, draw) for draw in self.draws for policy in self.policies]


def check(plan: Plan, world: World) -> None:
    """Refuse a plan that cannot run, before anything is started."""
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
                "disclosure level 'total' needs identities, with which the providers sign their "
                "keys: leave --insecure out, or choose --disclosure count"
            )
        TotalGroup("", (*world.nodes, world.cloud), world.cloud)
    names = [*roster(world, plan.source_processes).all, CLOCK, BROKER]
    for name in set(names):
        if names.count(name) > 1:
            raise InputError(f"two participants are called {name}: give the node another name")
    check_choice(plan.broker)
    if plan.adaptation and plan.contained:
        raise InputError(
            "--adapt needs torch, which the agent's image does not hold: use --federated in place "
            "of --docker"
        )
    for spec in plan.policies:
        if plan.adaptation:
            Adaptation(spec, world.agent, plan.adaptation)
        else:
            requirements_of(spec, world, plan.product)


def check_windows(plan: Plan, world: World) -> None:
    """Refuse a window of several decisions to policies that need to see or learn in between."""
    for spec in plan.policies:
        plan_requirements(plan, spec, world).check_window(plan.window, spec)
        if plan.adaptation and plan.window > 1:
            raise InputError(
                f"--window {plan.window}: with --adapt a window ends where the agent learns, so "
                "leave --window out, or choose 1"
            )


def plan_requirements(plan: Plan, spec: str, world: World) -> PolicyRequirements:
    """Return what a policy of the plan declares; the same policy may need more to learn."""
    if plan.adaptation:
        kind = adapting_class(spec, world.agent, plan.adaptation.adapt)
        return PolicyRequirements.of(kind)
    return requirements_of(spec, world)


def exposed_sizes(world: World) -> str | None:
    """Return a sentence on providers whose messages tell secrets by their sizes, or None."""
    exposed = [fog for fog in world.fogs if not fog.sizes_are_public]
    if not exposed:
        return None
    return (
        f"NOT PROTECTED: with discipline {exposed[0].discipline} the sizes of a provider's "
        "messages tell how many jobs it finished; with fifo they do not."
    )


def roster(world: World, source_processes: int) -> Roster:
    """Return who takes part."""
    names = ["sources"]
    if source_processes > 1:
        names = [f"sources-{number}" for number in range(1, source_processes + 1)]
    return Roster(tuple(names), world.nodes, world.cloud)


class Site:
    """Where participants run and listen: here, at Unix sockets or on loopback."""

    lifeline = True
    """Whether participants exit when their standard input ends."""
    becomes_user = True
    """Whether a participant drops to its user itself; else it is started as that user."""
    namespaces = "none"
    """What encloses the participants, as run.json names it."""
    sockets: SocketFolders | None = None
    """The Unix sockets at which participants meet; None where they use TCP."""

    def __init__(self, listeners: Mapping[str, str] | None = None) -> None:
        self._listeners = listeners or {}

    def listen(self, name: str) -> str:
        """Return where a participant listens; port 0 is a free one."""
        return self._listeners.get(name, f"{LOOPBACK}:0")

    def awaits(self, _name: str) -> list[str]:
        """Return the addresses that must be reachable before a participant begins."""
        return []


def local_site(plan: Plan, roster: Roster) -> Site:
    """Return this machine, with the ports of the plan."""
    names = (CLOCK, *roster.fogs, roster.cloud)
    ports = zip(names, plan.ports, strict=True) if plan.ports else ()
    site = Site({name: f"{LOOPBACK}:{port}" for name, port in ports})
    site.becomes_user = plan.product is None  # a copy's code never runs as root
    return site


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
        self.roster = roster(world, plan.source_processes)
        self.site = site or local_site(plan, self.roster)
        self.run = run
        self.broker = ""
        """The broker's address, once it is up."""
        self.interpose: Interpose = lambda _caller, _callee, address: address
        """Where a participant is told to dial another: its address, or an auditor's wire tap."""
        self.own_broker = False
        """Whether the broker has an identity of this run."""
        self.mint = Mint(run) if plan.secure else None
        self.written: dict[str, dict[str, tuple[int, int]]] = {}
        """Size and time of the files that were written for each participant, by path."""
        if users is None:
            names = [*self.roster.all, CLOCK, BROKER]
            users = users_of(run, names) if plan.separate_users else {}
        self.users = users
        sources = self.roster.sources
        self.owners = tuple(sources[n % len(sources)] for n in range(len(world.clusters)))
        """The sources process of each cluster."""

    def folder_of(self, name: str) -> Path:
        """Return a participant's own folder."""
        return self._folder / quote(name, safe="")

    def clusters_of(self, name: str) -> tuple[int, ...]:
        """Return the clusters of a sources process."""
        return tuple(number for number, owner in enumerate(self.owners) if owner == name)

    def requirements(self, episode: int) -> PolicyRequirements:
        """Return what the policy of an episode declares, or the agent in training."""
        if self._plan.training:
            kind = find_agent(self._plan.training.agent)
            return PolicyRequirements.of(kind)
        return plan_requirements(self._plan, self._plan.episodes[episode][0], self._world)

    def _common(self, name: str, clock: str) -> dict[str, Any]:
        """Return the keys that all participants' settings have."""
        return {
            "name": name,
            "run": self.run,
            "clock": clock if name == CLOCK else self.interpose(name, CLOCK, clock),
            # The clock does not use the broker.
            "broker": "" if name == CLOCK else self.interpose(name, BROKER, self.broker),
            "own_broker": self.own_broker,
            "lifeline": self.site.lifeline,
            "secure": self._plan.secure,
            "record": self._plan.record,
            "recovers": self._plan.recovers,
            "user": self.users.get(name) if self.site.becomes_user else None,
            "awaits": tuple(self.site.awaits(name)),
            "folder": self.folder_of(name),
        }

    def _write(self, settings: Settings) -> Path:
        """Write a participant's configuration and identity into a folder that it owns."""
        name = settings.name
        with reporting_write_errors(settings.folder):
            settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.identify(name, self.roster.role_of(name) or name, settings.folder / "identity")
            path = write_settings(settings)
            self.give_to_user(name)
        self.written[name] = {
            str(each.relative_to(settings.folder)): (each.stat().st_size, each.stat().st_mtime_ns)
            for each in (path, *(settings.folder / "identity").glob("*"))
        }
        return path

    def give_to_user(self, name: str) -> None:
        """Give a participant's folder to its user, if it has one of its own."""
        give_to(self.users.get(name), self.folder_of(name))

    def identify(self, name: str, role: str, folder: Path) -> Credentials | None:
        """Issue a certificate for a participant, if the run has identities."""
        if self.mint is None:
            return None
        with reporting_write_errors(folder):
            return self.mint.issue(Identity(self.run, role, name), folder)

    def clock(self) -> Path:
        """Write the clock's: who takes part, and nothing about them."""
        plan = self._plan
        return self._write(
            ClockSettings(
                **self._common(CLOCK, self.site.listen(CLOCK)),
                roster=self.roster,
                draws=None if plan.training else tuple(draw for _, draw in plan.episodes),
                first_draw=plan.training.done + 1 if plan.training else 0,
                speed=plan.speed,
                members=self._world.members,
                tells_providers=self._world.agent.disclosed is Level.TOTAL,
                paced=plan.paced,
                patience=plan.patience,
            )
        )

    def provider(self, name: str, clock: str) -> Path:
        """Write a provider's: its own resources, the applications, whom results go to."""
        world, roster = self._world, self.roster
        total = None
        if world.agent.disclosed is Level.TOTAL:
            total = TotalMembers((*roster.fogs, roster.cloud), roster.cloud)
        return self._write(
            ProviderSettings(
                **self._common(name, clock),
                provider=world.provider(name),
                total=total,
                owners=self.owners,
                fogs=roster.fogs if name == roster.cloud else (),
                listen=self.site.listen(name),
                pads=self._plan.pads,
            )
        )

    def settle_port(self, name: str, port: int | None) -> Path:
        """Let a participant that is started again listen where it did before, if it listens."""
        path, address = self.folder_of(name) / CONFIG, f"{LOOPBACK}:{port}"
        if port is not None and self.site.listen(name).endswith(":0"):
            if name == CLOCK:
                write_settings(replace(read_settings(path, ClockSettings), clock=address))
            else:
                write_settings(replace(read_settings(path, ProviderSettings), listen=address))
            self.give_to_user(name)
        return path

    def sources(self, name: str, clock: str) -> Path:
        """Write a sources process's: when its clusters emit what."""
        return self._write(
            SourcesSettings(
                **self._common(name, clock),
                emissions=self._world.sources,
                clusters=self.clusters_of(name),
                providers=(*self.roster.fogs, self.roster.cloud),
            )
        )

    def _copy_policies(self) -> list[str]:
        """Copy the files of the user's policies into the agent's folder; return how to load them.

        Each gets a subfolder: files of trained agents all have the same name. With a policy go the
        Python files beside it that it imports, and no others.
        """
        specs: list[str] = []
        subfolders: dict[Path, str] = {}
        for spec, _ in self._plan.episodes:
            path = policies.file_of(spec)
            if path is None:
                specs.append(spec)
                continue
            subfolder = subfolders.setdefault(path, f"policy-{len(subfolders) + 1}")
            folder = self.folder_of(AGENT) / subfolder
            if policies.is_foreign(spec):
                files = read_policy_files(path)
                with reporting_write_errors(folder):
                    files.write_to(folder)
                specs.append(f"{subfolder}/{path.name}:{spec.rpartition(':')[2]}")
            else:
                specs.append(f"{subfolder}/{copy_whole(path, folder)}")
        return specs

    def agent(self, clock: str, providers: Mapping[str, str]) -> Path:
        """Write the agent's: the public facts, and where the providers' boundaries are."""
        plan = self._plan
        # Before anything is copied into it: a parent that `mkdir` creates would be open to all.
        with reporting_write_errors(self.folder_of(AGENT)):
            self.folder_of(AGENT).mkdir(parents=True, exist_ok=True, mode=0o700)
        training = None
        if plan.training:
            start, transfer = None, plan.training.transfer
            if transfer:
                start = f"start/{copy_whole(transfer.file, self.folder_of(AGENT) / 'start')}"
            training = TrainingSettings(
                plan.training.agent,
                plan.training.hyperparameters,
                plan.training.every,
                start,
                replay=transfer is not None and transfer.replay,
            )
            if plan.training.checkpoint:
                copy_whole(plan.training.checkpoint, self.folder_of(AGENT))
        adaptation = None
        if asked := plan.adaptation:
            adaptation = AdaptationSettings(asked.adapt.value, dict(asked.changes))
        return self._write(
            AgentSettings(
                **self._common(AGENT, clock),
                view=self._world.agent,
                latency_changes=self._world.latency_changes,
                providers={
                    name: self.interpose(AGENT, name, address)
                    for name, address in providers.items()
                },
                sources=self.roster.sources,
                emissions=EmissionRules(
                    owners=self.owners,
                    numbered=self._world.sources.trace is None,
                    demands=self._world.cloud_provider.demands_vary,
                ),
                policies=tuple(self._copy_policies()),
                training=training,
                adaptation=adaptation,
                window=plan.window,
                late_after=plan.late_after,
            )
        )

    def auditor(self, folder: Path, addresses: Mapping[str, str]) -> None:
        """Issue the auditor's certificate, and write the grpcurl command for each provider."""
        issued = self.identify(AUDITOR, AUDITOR, folder)
        if issued is None:
            return
        lines = []
        for name in (*self.roster.fogs, self.roster.cloud):
            provider = Identity(self.run, self.roster.role_of(name) or name, name)
            command = ["grpcurl", "-cacert", issued.authority, "-cert", issued.certificate]
            command += ["-key", issued.key, "-authority", provider.host]
            address = addresses[name]
            if address.startswith(UNIX):
                command += ["-unix", address.removeprefix(UNIX), "list"]
            else:
                command += [address, "list"]
            lines.append(f"# {name}\n{shlex.join(map(str, command))}\n")
        with reporting_write_errors(folder):
            (folder / "grpcurl.txt").write_text("".join(lines), encoding="utf-8")


def copy_whole(path: Path, folder: Path) -> str:
    """Copy a file into a folder atomically; return its name there."""
    part = folder / f"{path.name}.part"
    with reporting_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copy(path, part)
        part.replace(folder / path.name)
    return path.name
