"""The world of a scenario: names, latencies, resources, and each participant's part of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np

from fogveil.agent.policy import AgentView, LatencyChange
from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.core.membership import MembershipChange
from fogveil.core.plain import to_plain
from fogveil.core.randomness import Seeds, drawn
from fogveil.core.steps import Steps
from fogveil.provider_node.provider import ProviderConfig
from fogveil.provider_node.timetable import Change
from fogveil.sources.core import SourcesConfig, Trace, demand_factors
from fogveil.testbed.scenario.event_plan import EventPlan, plan_events
from fogveil.testbed.scenario.models import FogResources, Linear, PerNode, Profile, Scenario
from fogveil.testbed.scenario.paths import FastestPaths
from fogveil.testbed.scenario.topology import Topology, build_topology
from fogveil.testbed.scenario.traces import read_trace


@dataclass(frozen=True)
class World:
    """Everything about a scenario; only the experimenter has all of it."""

    scenario: Scenario
    topology: Topology = field(repr=False)
    paths: FastestPaths = field(repr=False)
    """Those at the beginning."""
    nodes: tuple[str, ...]
    clusters: tuple[str, ...]
    categories: tuple[str, ...]
    cloud: str
    agent: AgentView = field(repr=False)
    fogs: tuple[ProviderConfig, ...] = field(repr=False)
    cloud_provider: ProviderConfig = field(repr=False)
    sources: SourcesConfig = field(repr=False)
    notes: tuple[str, ...] = ()
    """What of the user's files was changed or left out: one line each."""
    paths_over_time: Steps[FastestPaths] = field(repr=False, kw_only=True)
    latency_changes: tuple[LatencyChange, ...] = field(default=(), repr=False)
    """What everybody learns of the network when it happens; the first ones hold from 0 on."""
    members: tuple[MembershipChange, ...] = ()
    """Which Fog nodes are there, as far as it changes."""

    @property
    def loses_jobs(self) -> bool:
        """Whether a crash loses jobs, so that some are emitted more than once."""
        return any(change.notice is not None for change in self.members)

    @property
    def demands(self) -> tuple[float, ...] | None:
        """Demand factor of each job; a provider receives that of a job together with the job."""
        return demand_factors(self.sources)

    def projection(self, participant: str) -> dict[str, Any]:
        """Return exactly what a participant receives: `agent`, `sources`, `clock` or a provider."""
        configs: dict[str, Any] = {"agent": self.agent, "sources": self.sources}
        configs |= {config.name: config for config in (*self.fogs, self.cloud_provider)}
        # The clock is trusted with time, and with who is there, alone.
        configs["clock"] = {"horizon": self.scenario.horizon, "members": self.members}
        if participant not in configs:
            raise InputError(
                f"no participant is called {participant!r}: expected one of {', '.join(configs)}"
            )
        plain: dict[str, Any] = to_plain(configs[participant])
        if participant == "agent":
            plain["latency_changes"] = to_plain(self.latency_changes)
        return plain

    def provider(self, name: str) -> ProviderConfig:
        """Return the configuration of a provider, Fog or Cloud."""
        return next(config for config in (*self.fogs, self.cloud_provider) if config.name == name)

    def reseeded(self, seed: int) -> World:
        """Return the same world with another scenario seed."""
        scenario = self.scenario.model_copy(update={"seed": seed})
        return replace(self._with_seeds(Seeds.of(seed)), scenario=scenario)

    def drawn(self, draw: int) -> World:
        """Return the same world with other random numbers, for an episode; draw 0 is a run.

        Each participant can derive them from its own seed.
        """
        seeds = Seeds(self.sources.seed, self.cloud_provider.seed, self.agent.seed)
        return self._with_seeds(Seeds(*(drawn(seed, draw) for seed in seeds)))

    def _with_seeds(self, seeds: Seeds) -> World:
        return replace(
            self,
            agent=replace(self.agent, seed=seeds.policy),
            fogs=tuple(replace(fog, seed=seeds.environment) for fog in self.fogs),
            cloud_provider=replace(self.cloud_provider, seed=seeds.environment),
            sources=replace(self.sources, seed=seeds.workload),
        )


def build_world(scenario: Scenario) -> World:
    """Build the world of a scenario; the same scenario always gives the same world."""
    topology = build_topology(scenario)
    paths = FastestPaths(topology, scenario.applications)
    seeds = Seeds.of(scenario.seed)
    nodes = tuple(topology.names[node] for node in topology.fogs)
    clusters = tuple(topology.names[node] for node in topology.clusters)
    cloud = topology.names[topology.cloud]
    categories = tuple(application.name for application in scenario.applications)
    work = {application.name: application.instructions for application in scenario.applications}
    disclosed = Level.parse(scenario.disclosure)
    trace, notes = None, list(topology.notes)
    if scenario.sources.kind == "trace":
        trace = read_trace(scenario.sources, clusters, work, scenario.horizon, notes)

    fog_resources = _fog_resources(scenario.fog, len(nodes))
    speeds = {name: each["ipt"] for name, each in zip(nodes, fog_resources, strict=True)}
    plan = plan_events(scenario, topology, {**speeds, cloud: scenario.cloud.ipt}, categories)
    later = [
        (at, FastestPaths(replace(topology, graph=graph), scenario.applications))
        for at, graph in plan.networks
    ]

    service = scenario.service
    shape = service.shape if service.distribution in ("exponential", "erlang") else 0
    common: dict[str, Any] = {
        "disclosure": disclosed,
        "count": scenario.count,
        "categories": categories,
        "instructions": tuple(work.values()),
        "service_shape": shape,
        "service_tail": service.tail or 0.0,
        "demands_vary": trace is not None and trace.demands is not None,
        "seed": seeds.environment,
    }
    fogs = tuple(
        ProviderConfig(
            name=name,
            **resources,
            forwards=scenario.loops.to_cloud,
            cloud_latency=tuple(row[number] for row in paths.fog_to_cloud),
            feeds_back=1.0,
            changes=_provider_changes(plan, name, number, later),
            **common,
        )
        for number, (name, resources) in enumerate(zip(nodes, fog_resources, strict=True))
    )
    for network in (paths, *(each for _, each in later)):
        _check_finite(
            trace,
            network,
            _all_values("ipt", [scenario.cloud.ipt, *speeds.values()], plan),
            [*work.values(), *_all_values("instructions", [], plan)],
        )
    cloud_provider = ProviderConfig(
        name=cloud,
        **scenario.cloud.model_dump(),
        forwards=0.0,
        cloud_latency=(),
        feeds_back=scenario.loops.feedback,
        changes=tuple(plan.providers[cloud]),
        **common,
    )
    sources = scenario.sources
    return World(
        scenario=scenario,
        topology=topology,
        paths=paths,
        nodes=nodes,
        clusters=clusters,
        categories=categories,
        cloud=cloud,
        agent=AgentView(
            nodes=nodes,
            cloud=cloud,
            clusters=clusters,
            categories=categories,
            count=scenario.count,
            disclosed=disclosed,
            up=paths.up,
            down=paths.down,
            hops=paths.hops,
            bandwidth=paths.bandwidth,
            seed=seeds.policy,
            settings={"electre": scenario.electre.model_dump()},
        ),
        fogs=fogs,
        cloud_provider=cloud_provider,
        sources=SourcesConfig(
            clusters=clusters,
            categories=categories,
            kind=sources.kind,
            scale=0.0 if sources.kind == "trace" else sources.scale,
            phase=getattr(sources, "phase", "spread"),
            trace=trace,
            horizon=scenario.horizon,
            seed=seeds.workload,
            changes=tuple(plan.sources),
        ),
        notes=tuple(notes),
        paths_over_time=Steps(paths, later),
        latency_changes=tuple(
            LatencyChange(at, each.up, each.down, each.hops, each.bandwidth)
            for at, each in ([(0.0, paths), *later] if later else ())
        ),
        members=tuple(plan.members),
    )


def _provider_changes(
    plan: EventPlan, name: str, number: int, later: Sequence[tuple[float, FastestPaths]]
) -> tuple[Change, ...]:
    """Return what a Fog provider is told: its own changes, and those of its way to the Cloud."""
    ways = [
        Change(at, cloud_latency=tuple(row[number] for row in paths.fog_to_cloud))
        for at, paths in later
    ]
    return tuple(sorted([*plan.providers[name], *ways], key=lambda change: change.at))


def _all_values(name: str, first: list[float], plan: EventPlan) -> list[float]:
    """Return all values that a property of the providers has during the run."""
    values = list(first)
    for changes in plan.providers.values():
        for change in changes:
            value = getattr(change, name)
            values += value if isinstance(value, tuple) else [] if value is None else [value]
    return values


def _fog_resources(fog: FogResources, nodes: int) -> list[dict[str, Any]]:
    ipt = _per_node(fog.ipt, nodes, "fog.ipt")
    ram = _per_node(fog.ram, nodes, "fog.ram")
    order = np.arange(nodes)
    if fog.assignment == "shuffled":
        order = np.random.Generator(np.random.Philox(fog.seed)).permutation(nodes)
    common = {"servers": fog.servers, "discipline": fog.discipline}
    return [{"ipt": ipt[place], "ram": ram[place], **common} for place in order]


def _per_node(value: PerNode, nodes: int, key: str) -> list[float]:
    if isinstance(value, Linear):
        values: list[float] = np.linspace(*value.linear, nodes).tolist()
        return values
    if isinstance(value, Profile):
        places = np.linspace(0, len(value.profile) - 1, nodes)
        spread: list[float] = np.interp(places, range(len(value.profile)), value.profile).tolist()
        return spread
    if isinstance(value, list):
        if len(value) != nodes:
            raise InputError(
                f"{key}: expected {nodes} values, one per Fog node, got {len(value)}; "
                "{ profile = [...] } fits any number of nodes"
            )
        return value
    return [value] * nodes


def _check_finite(
    trace: Trace | None, paths: FastestPaths, ipt: list[float], work: list[float]
) -> None:
    """Refuse numbers whose quotients overflow."""
    demands = list(work)
    if trace and trace.demands:
        jobs = zip(trace.demands, trace.categories, strict=True)
        demands += [factor * work[category] for factor, category in jobs]
    slowest = max(demands) / min(ipt)
    farthest = max(max(map(max, latencies)) for latencies in (*paths.up, *paths.down))
    if not isfinite(slowest) or not isfinite(farthest):
        raise InputError(
            "the scenario gives infinite service times or latencies: expected larger ipt and "
            "bandwidth, or fewer instructions and bytes"
        )
