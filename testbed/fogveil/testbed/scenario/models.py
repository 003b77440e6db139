"""The keys of a scenario file, their types, bounds and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from fogveil.core.disclosure import CountKind
from fogveil.testbed.scenario.events import AnyEvent
from fogveil.testbed.scenario.tables import (
    Name,
    NotNegative,
    Positive,
    ScenarioTable,
    Seed,
    Share,
)

# --- numbers: constant, drawn, read or spread --------------------------------------------------


class Uniform(ScenarioTable):
    """Drawn per link, uniformly between two bounds."""

    uniform: tuple[Positive, Positive] = Field(strict=False)
    """The lower and the upper bound."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.uniform[0] > self.uniform[1]:
            raise ValueError("expected the lower bound first")
        return self


class Attribute(ScenarioTable):
    """An attribute of the graph file's links, times a factor."""

    attribute: str
    """Name of the attribute in the graph file."""
    factor: Positive = 1.0
    """What the attribute's value is multiplied by."""
    default: Positive | None = None
    """Value of links without the attribute, before the factor; without it they are refused."""


class Coordinates(ScenarioTable):
    """The great-circle distance between the nodes of the graph file, as simulated time."""

    km_per_unit: Positive
    """Kilometres that a message travels in a time unit."""
    longitude: str = "Longitude"
    """Name of the nodes' attribute in degrees east."""
    latitude: str = "Latitude"
    """Name of the nodes' attribute in degrees north."""
    least: Positive = 0.1
    """The delay of links that would be shorter."""


class Linear(ScenarioTable):
    """Spread evenly over the Fog nodes, the first value for the most central node."""

    linear: tuple[Positive, Positive] = Field(strict=False)
    """The values of the first and of the last Fog node."""


class Profile(ScenarioTable):
    """Values in order of centrality, interpolated where there are more or fewer Fog nodes."""

    profile: list[Positive] = Field(min_length=2)
    """The values, that of the most central Fog node first."""


PerNode = Positive | Linear | Profile | list[Positive]


# --- topology ----------------------------------------------------------------------------------


class GeneratedTopology(ScenarioTable):
    """An Internet autonomous-system graph, as in the paper."""

    kind: Literal["internet_as"]
    nodes: Annotated[int, Field(ge=10, le=100_000)]
    """Number of nodes of the graph, relays included."""
    seed: Seed = 0
    """Selects the graph."""


class FileTopology(ScenarioTable):
    """A graph read from GraphML, GML or node-link JSON."""

    kind: Literal["file"]
    file: str
    """Path of the graph, ending in .graphml, .gml or .json, relative to the scenario's file."""


class ExplicitNode(ScenarioTable):
    """A node by name, with its role; a relay only forwards."""

    name: Name
    """Name of the node; not agent, sources, clock or broker."""
    role: Literal["cloud", "fog", "cluster", "relay"] = "relay"
    """What the node is; there is exactly one Cloud."""


class ExplicitLink(ScenarioTable):
    """A link between two nodes of the list."""

    between: tuple[Name, Name] = Field(strict=False)
    """The names of two nodes."""
    bandwidth: Positive | None = None
    """Bytes per time unit, in place of links.bandwidth."""
    propagation: Positive | None = None
    """Time units, in place of links.propagation."""


class ExplicitTopology(ScenarioTable):
    """Nodes and links listed in the scenario itself."""

    kind: Literal["explicit"]
    nodes: list[ExplicitNode] = Field(min_length=3)
    """The nodes; Fog nodes are numbered in this order."""
    links: list[ExplicitLink] = Field(min_length=2)
    """The links; all nodes must be connected."""


AnyTopology = Annotated[
    GeneratedTopology | FileTopology | ExplicitTopology, Field(discriminator="kind")
]


class Roles(ScenarioTable):
    """Number of nodes of each role, chosen by betweenness centrality; there is one Cloud."""

    fog: Annotated[int, Field(ge=1)]
    """Number of Fog nodes: the most central ones after the Cloud."""
    clusters: Annotated[int, Field(ge=1)]
    """Number of IoT clusters; each is a leaf beside a Fog node."""
    seed: Seed = 0
    """Selects the Fog nodes that have a cluster, if not all do."""
    sample: Annotated[int, Field(ge=1)] | None = None
    """Estimates centrality from the paths of so many nodes, drawn at random; exact without it."""


class Links(ScenarioTable):
    """Bandwidth (bytes per time unit) and propagation delay of links without their own."""

    bandwidth: Positive | Uniform | Attribute = 100.0
    """Bytes per time unit: a number, drawn, or an attribute of the graph file."""
    propagation: Positive | Uniform | Attribute | Coordinates = 1.0
    """Time units: a number, drawn, an attribute of the graph file, or by distance."""
    seed: Seed = 0
    """Selects what is drawn."""


# --- providers ---------------------------------------------------------------------------------


class FogResources(ScenarioTable):
    """The providers' secrets: speed (instructions per time unit), memory, servers, discipline."""

    ipt: PerNode
    """Speed in instructions per time unit: one for all, spread, or one for each node."""
    ram: PerNode = 16.0
    """Memory in any unit, a criterion of the ELECTRE policies alone; given like ipt."""
    servers: Annotated[int, Field(ge=1)] = 1
    """Jobs that a node serves at the same time."""
    discipline: Literal["fifo", "sjf"] = "fifo"
    """`fifo` serves in order of arrival, `sjf` the shortest waiting job first."""
    assignment: Literal["centrality", "shuffled"] = "centrality"
    """`shuffled` assigns the resources at random, so that centrality reveals nothing of them."""
    seed: Seed = 0
    """Selects the random assignment; the agent never sees it."""


class CloudResources(ScenarioTable):
    """The Cloud: a node with a queue that is never an action."""

    ipt: Positive
    """Speed in instructions per time unit."""
    ram: Positive = 64.0
    """Memory, in the unit of fog.ram."""
    servers: Annotated[int, Field(ge=1)] = 1
    """Jobs that the Cloud serves at the same time."""
    discipline: Literal["fifo", "sjf"] = "fifo"
    """As for the Fog nodes."""


class Application(ScenarioTable):
    """An application, and so a category of workloads."""

    name: Name
    """Name of the category."""
    instructions: Positive
    """Work of a job; divided by a node's ipt it is the mean service time there."""
    bytes_up: NotNegative
    """Size of a workload on its way to the node, and on to the Cloud."""
    bytes_down: NotNegative
    """Size of the result on its way back."""
    deadline: Positive | None = None
    """For the Fog loop, in time units. Only the evaluation uses it: no participant receives it."""


class Loops(ScenarioTable):
    """The Cloud loop: the share of workloads forwarded to the Cloud, and the share fed back."""

    to_cloud: Share = 0.1
    """Share of the workloads that go on to the Cloud after their Fog node."""
    feedback: Share = 0.5
    """Share of those of which the Cloud sends a result to the cluster."""


# --- workload ----------------------------------------------------------------------------------


class PoissonSources(ScenarioTable):
    """A source per (cluster, application); gaps are exponential of mean `scale` (the paper's β)."""

    kind: Literal["poisson"]
    scale: Positive
    """β: mean time between two workloads of a source; the smaller, the heavier the load."""


class DeterministicSources(ScenarioTable):
    """A source per (cluster, application) that emits every `scale` time units."""

    kind: Literal["deterministic"]
    scale: Positive
    """Time between two workloads of a source."""
    phase: Literal["spread", "together"] = "spread"
    """`together` lets all sources emit at the same instants, `spread` spaces them evenly."""


class TraceColumns(ScenarioTable):
    """Names of the trace's columns; only the time is required."""

    time: str
    """Column of arrival times, in order: numbers or time stamps."""
    demand: str | None = None
    """Column of job sizes; without it every job has its application's instructions."""
    category: str | None = None
    """Column of application names; without it the application of the nearest size, or in turn."""
    cluster: str | None = None
    """Column of cluster names; without it the clusters take turns."""


class TraceSources(ScenarioTable):
    """Real arrivals, replayed from a CSV or Parquet file."""

    kind: Literal["trace"]
    file: str
    """Path of the trace, ending in .csv or .parquet, relative to the scenario's file."""
    columns: TraceColumns
    """Which columns of the file are used."""
    time_scale: Positive = 1.0
    """Simulated time units per unit of the time column (per second, for time stamps)."""
    demand_scale: Positive = 1.0
    """Instructions per unit of the demand column."""


AnySources = Annotated[
    PoissonSources | DeterministicSources | TraceSources, Field(discriminator="kind")
]


class Service(ScenarioTable):
    """Service time = factor · instructions / IPT; the factor has mean 1 and belongs to the job."""

    distribution: Literal["deterministic", "exponential", "erlang", "pareto"] = "deterministic"
    """How the factor is drawn; `deterministic` makes it 1."""
    shape: Annotated[int, Field(ge=1, le=1000)] = 1
    """Of the erlang distribution."""
    tail: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Shape of the pareto distribution; the smaller, the more work is in a few large jobs."""

    @model_validator(mode="after")
    def _shapes_belong_to_their_distributions(self) -> Self:
        if self.shape != 1 and self.distribution != "erlang":
            raise ValueError("shape is for the erlang distribution only; remove it")
        if self.tail is not None and self.distribution != "pareto":
            raise ValueError("tail is for the pareto distribution only; remove it")
        if self.tail is None and self.distribution == "pareto":
            raise ValueError("the pareto distribution needs the key tail, its shape, such as 1.5")
        return self


# --- policies' settings ------------------------------------------------------------------------


class ElectreCriterion(ScenarioTable):
    """One ELECTRE criterion: its weight and its thresholds, as shares of the criterion's range."""

    name: Literal["service", "ipt", "ram", "latency", "bandwidth", "hops", "queue"]
    """What is compared."""
    weight: Positive
    """Its weight among the criteria."""
    indifference: NotNegative = 0.05
    """Differences up to this share of the range do not count."""
    preference: NotNegative = 0.2
    """Differences from this share of the range on count in full."""
    veto: Positive | None = None
    """A difference of this share of the range against a node excludes it, whatever else speaks for
    it."""

    @model_validator(mode="after")
    def _thresholds_ordered(self) -> Self:
        if self.preference < self.indifference:
            raise ValueError("expected indifference ≤ preference")
        if self.veto is not None and self.veto <= self.preference:
            raise ValueError("expected preference < veto")
        return self


class ElectreSettings(ScenarioTable):
    """Criteria of the ELECTRE policies; only `electre-queue` uses the criterion `queue`."""

    criteria: list[ElectreCriterion] = Field(min_length=1)
    """The criteria of `electre` and `electre-queue`."""
    queue: ElectreCriterion
    """The criterion that `electre-queue` adds."""

    @model_validator(mode="after")
    def _queue_is_separate(self) -> Self:
        if self.queue.name != "queue" or any(c.name == "queue" for c in self.criteria):
            raise ValueError("expected the criterion 'queue' under electre.queue and only there")
        return self


def _default_electre() -> ElectreSettings:
    """Return weights and thresholds calibrated on the paper's environment; none are published."""
    weights: dict[Any, float] = {"service": 1, "ram": 1, "latency": 4, "bandwidth": 3, "hops": 3}
    criteria = [
        ElectreCriterion(
            name=name,
            weight=float(weight),
            indifference=0.3,
            preference=0.5,
            veto=0.6 if name == "service" else None,
        )
        for name, weight in weights.items()
    ]
    queue = ElectreCriterion(name="queue", weight=12.0, indifference=0.05, preference=0.2)
    return ElectreSettings(criteria=criteria, queue=queue)


# --- the scenario ---------------------------------------------------------------------------------


class Scenario(ScenarioTable):
    """A whole scenario, as one TOML file gives it."""

    name: Name
    """Name of the scenario, in tables, figures and folders."""
    seed: int = 1
    """Any integer. A participant's seed is derived from it one-way, but a small one can be found by
    trying all; only one of about 128 random bits hides the other participants' seeds."""
    horizon: Positive = 10_000.0
    """Simulated time at which sources stop; what is queued then is served to the end."""
    count: Annotated[CountKind, Field(strict=False)] = CountKind.WAITING
    """Which jobs a count counts: those that wait, or also those in service."""
    disclosure: Literal["none", "total", "count", "full"] = "count"
    """What every provider discloses to the agent."""
    topology: AnyTopology
    """The network: generated, read from a file, or listed."""
    roles: Roles | None = None
    """Required unless the topology is explicit: how many Fog nodes and clusters there are."""
    links: Links = Links()
    fog: FogResources
    cloud: CloudResources
    applications: list[Application] = Field(min_length=1)
    """The applications, which are the categories of workloads."""
    loops: Loops = Loops()
    sources: AnySources
    """When workloads are emitted: drawn, at even gaps, or replayed."""
    service: Service = Service()
    electre: ElectreSettings = Field(default_factory=_default_electre)
    events: list[AnyEvent] = Field(default_factory=list)
    """What changes during the run, in order of time; each event is told to those it concerns."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [application.name for application in self.applications]
        if len(set(names)) < len(names):
            raise ValueError("applications: expected different names, two are equal")
        if self.topology.kind != "explicit" and self.roles is None:
            raise ValueError("roles: expected a table [roles] with the keys fog and clusters")
        if self.topology.kind == "explicit" and self.roles is not None:
            raise ValueError(
                "roles: an explicit topology has the roles in its nodes; remove [roles]"
            )
        return self

    @classmethod
    def load(cls, spec: str | Path | dict[str, Any]) -> Scenario:
        """Return a scenario by its file or shipped name, or from the content of a file.

        >>> Scenario.load("tiny").horizon
        2000.0
        """
        from fogveil.testbed.scenario.load import load_scenario  # which imports this module

        return load_scenario(spec)

    def replace(self, changes: Mapping[str, Any] | None = None, **named: Any) -> Scenario:
        """Return the scenario with other values, checked as those of a file are.

        `changes` maps dotted keys, as `--set` does; among the named ones `rate`, `fog` and
        `clusters` stand for `sources.scale`, `roles.fog` and `roles.clusters`, and two underscores
        for a dot.

        >>> Scenario.load("tiny").replace({"loops.to_cloud": 0.2}, rate=100, fog__ram=8.0).sources
        PoissonSources(kind='poisson', scale=100.0)
        """
        from fogveil.testbed.scenario.load import load_scenario

        short = {"fog": "fog.count", "clusters": "clusters.count"}
        overrides = dict(changes or {})
        for key, value in named.items():
            whole = isinstance(value, Integral)  # else it is the table of that name
            dotted = short[key] if key in short and whole else key.replace("__", ".")
            overrides[dotted] = value
        for key, value in overrides.items():
            if isinstance(value, BaseModel):
                overrides[key] = value.model_dump(mode="json", exclude_unset=True)
        return load_scenario(self.model_dump(mode="json", exclude_unset=True), overrides)
