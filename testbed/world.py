"""A scenario made real: names, latencies and resources, and what each participant gets of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np

from agent.policy import AgentView
from fogveil.disclosure import Level
from fogveil.errors import InputError
from fogveil.randomness import Seeds, drawn
from provider_node.provider import ProviderConfig
from testbed.network import Network
from testbed.scenario.models import FogResources, Linear, PerNode, Scenario
from testbed.sources import SourcesConfig, demand_factors
from testbed.topology import Topology, build_topology
from testbed.traces import Trace, read_trace


@dataclass(frozen=True)
class World:
    """Everything about a scenario; only the experimenter holds it whole."""

    scenario: Scenario
    topology: Topology = field(repr=False)
    network: Network = field(repr=False)
    nodes: tuple[str, ...]
    clusters: tuple[str, ...]
    categories: tuple[str, ...]
    cloud: str
    agent: AgentView = field(repr=False)
    fogs: tuple[ProviderConfig, ...] = field(repr=False)
    cloud_provider: ProviderConfig = field(repr=False)
    sources: SourcesConfig = field(repr=False)

    @property
    def demands(self) -> tuple[float, ...] | None:
        """What each job demands; a provider is told with a job, and of no other."""
        return demand_factors(self.sources)

    def projection(self, participant: str) -> dict[str, Any]:
        """Return exactly what a participant is given: `agent`, `sources`, or a provider's name."""
        given: dict[str, Any] = {"agent": self.agent, "sources": self.sources}
        given |= {config.name: config for config in (*self.fogs, self.cloud_provider)}
        # The clock is trusted with time alone.
        given["clock"] = {"horizon": self.scenario.horizon}
        if participant not in given:
            raise InputError(
                f"no participant is called {participant!r}: expected one of {', '.join(given)}"
            )
        found = given[participant]
        return found if isinstance(found, dict) else _plain(asdict(found))

    def reseeded(self, seed: int) -> World:
        """Return the same world with another seed of the scenario."""
        scenario = self.scenario.model_copy(update={"seed": seed})
        return replace(self._with(Seeds.of(seed)), scenario=scenario)

    def drawn(self, draw: int) -> World:
        """Return the same scenario with other chance: an episode of a training; 0 is a run.

        Each participant can do this for itself, from the seed it has.
        """
        own = Seeds(self.sources.seed, self.cloud_provider.seed, self.agent.seed)
        return self._with(Seeds(*(drawn(seed, draw) for seed in own)))

    def _with(self, seeds: Seeds) -> World:
        return replace(
            self,
            agent=replace(self.agent, seed=seeds.policy),
            fogs=tuple(replace(fog, seed=seeds.environment) for fog in self.fogs),
            cloud_provider=replace(self.cloud_provider, seed=seeds.environment),
            sources=replace(self.sources, seed=seeds.workload),
        )


def build_world(scenario: Scenario) -> World:
    """Make the scenario real; the same scenario always gives the same world."""
    topology = build_topology(scenario)
    network = Network(topology, scenario.applications)
    seeds = Seeds.of(scenario.seed)
    nodes = tuple(topology.names[node] for node in topology.fogs)
    clusters = tuple(topology.names[node] for node in topology.clusters)
    cloud = topology.names[topology.cloud]
    categories = tuple(application.name for application in scenario.applications)
    work = {application.name: application.instructions for application in scenario.applications}
    disclosed = Level.parse(scenario.disclosure)
    trace = None
    if scenario.sources.kind == "trace":
        trace = read_trace(scenario.sources, clusters, work)

    service = scenario.service
    shape = 0 if service.distribution == "deterministic" else service.shape
    common: dict[str, Any] = {
        "disclosure": disclosed,
        "count": scenario.count,
        "categories": categories,
        "instructions": tuple(work.values()),
        "service_shape": shape,
        "demands_vary": trace is not None and trace.demands is not None,
        "seed": seeds.environment,
    }
    fogs = tuple(
        ProviderConfig(
            name=name,
            **resources,
            forwards=scenario.loops.to_cloud,
            cloud_latency=tuple(row[number] for row in network.fog_to_cloud),
            feeds_back=1.0,
            **common,
        )
        for number, (name, resources) in enumerate(
            zip(nodes, _fog_resources(scenario.fog, len(nodes)), strict=True)
        )
    )
    _check_finite(
        trace, network, [scenario.cloud.ipt, *(config.ipt for config in fogs)], list(work.values())
    )
    cloud_provider = ProviderConfig(
        name=cloud,
        **scenario.cloud.model_dump(),
        forwards=0.0,
        cloud_latency=(),
        feeds_back=scenario.loops.feedback,
        **common,
    )
    sources = scenario.sources
    return World(
        scenario=scenario,
        topology=topology,
        network=network,
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
            up=network.up,
            down=network.down,
            hops=network.hops,
            bandwidth=network.bandwidth,
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
        ),
    )


def _fog_resources(given: FogResources, nodes: int) -> list[dict[str, Any]]:
    ipt = _spread(given.ipt, nodes, "fog.ipt")
    ram = _spread(given.ram, nodes, "fog.ram")
    order = np.arange(nodes)
    if given.assignment == "shuffled":
        order = np.random.Generator(np.random.Philox(given.seed)).permutation(nodes)
    fixed = {"servers": given.servers, "discipline": given.discipline}
    return [{"ipt": ipt[place], "ram": ram[place], **fixed} for place in order]


def _spread(given: PerNode, nodes: int, key: str) -> list[float]:
    if isinstance(given, Linear):
        values: list[float] = np.linspace(*given.linear, nodes).tolist()
        return values
    if isinstance(given, list):
        if len(given) != nodes:
            raise InputError(f"{key}: expected {nodes} values, one per Fog node, got {len(given)}")
        return given
    return [given] * nodes


def _check_finite(
    trace: Trace | None, network: Network, ipt: list[float], work: list[float]
) -> None:
    """Refuse numbers whose quotients are too large to calculate with."""
    demands = list(work)
    if trace and trace.demands:
        told = zip(trace.demands, trace.categories, strict=True)
        demands += [factor * work[category] for factor, category in told]
    slowest = max(demands) / min(ipt)
    farthest = max(max(map(max, ways)) for ways in (*network.up, *network.down))
    if not isfinite(slowest) or not isfinite(farthest):
        raise InputError("the scenario's numbers give service times or latencies without end")


def _plain(value: Any) -> Any:
    """Spell enumerations as scenarios do, so that the projection reads as a file would."""
    if isinstance(value, Level):
        return value.word
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
