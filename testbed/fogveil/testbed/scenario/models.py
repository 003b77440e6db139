"""The keys of a scenario file, their types, bounds and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fogveil.core.disclosure import CountKind

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]


class ScenarioTable(BaseModel):
    """A table of the file: unknown keys are refused, values are immutable after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# --- numbers: constant, drawn, read or spread --------------------------------------------------


class Uniform(ScenarioTable):
    """Drawn per link, uniformly between two bounds."""

    uniform: tuple[Positive, Positive] = Field(strict=False)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.uniform[0] > self.uniform[1]:
            raise ValueError("expected the lower bound first")
        return self


class Attribute(ScenarioTable):
    """An attribute of the graph file's links, times a factor."""

    attribute: str
    factor: Positive = 1.0
    default: Positive | None = None


class Coordinates(ScenarioTable):
    """The great-circle distance between the nodes of the graph file, as simulated time."""

    km_per_unit: Positive
    longitude: str = "Longitude"
    latitude: str = "Latitude"
    least: Positive = 0.1


class Linear(ScenarioTable):
    """Spread evenly over the Fog nodes, the first value for the most central node."""

    linear: tuple[Positive, Positive] = Field(strict=False)


class Profile(ScenarioTable):
    """Values in order of centrality, interpolated where there are more or fewer Fog nodes."""

    profile: list[Positive] = Field(min_length=2)


PerNode = Positive | Linear | Profile | list[Positive]


# --- topology ----------------------------------------------------------------------------------


class GeneratedTopology(ScenarioTable):
    """An Internet autonomous-system graph, as in the paper."""

    kind: Literal["internet_as"]
    nodes: Annotated[int, Field(ge=10, le=100_000)]
    seed: Seed = 0


class FileTopology(ScenarioTable):
    """A graph read from GraphML, GML or node-link JSON."""

    kind: Literal["file"]
    file: str


class ExplicitNode(ScenarioTable):
    """A node by name, with its role; a relay only forwards."""

    name: Name
    role: Literal["cloud", "fog", "cluster", "relay"] = "relay"


class ExplicitLink(ScenarioTable):
    """A link between two nodes of the list."""

    between: tuple[Name, Name] = Field(strict=False)
    bandwidth: Positive | None = None
    propagation: Positive | None = None


class ExplicitTopology(ScenarioTable):
    """Nodes and links listed in the scenario itself."""

    kind: Literal["explicit"]
    nodes: list[ExplicitNode] = Field(min_length=3)
    links: list[ExplicitLink] = Field(min_length=2)


AnyTopology = Annotated[
    GeneratedTopology | FileTopology | ExplicitTopology, Field(discriminator="kind")
]


class Roles(ScenarioTable):
    """Number of nodes of each role, chosen by betweenness centrality; there is one Cloud."""

    fog: Annotated[int, Field(ge=1)]
    clusters: Annotated[int, Field(ge=1)]
    seed: Seed = 0
    """Selects the Fog nodes that have a cluster, if not all do."""


class Links(ScenarioTable):
    """Bandwidth (bytes per time unit) and propagation delay of links without their own."""

    bandwidth: Positive | Uniform | Attribute = 100.0
    propagation: Positive | Uniform | Attribute | Coordinates = 1.0
    seed: Seed = 0


# --- providers ---------------------------------------------------------------------------------


class FogResources(ScenarioTable):
    """The providers' secrets: speed (instructions per time unit), memory, servers, discipline."""

    ipt: PerNode
    ram: PerNode = 16.0
    servers: Annotated[int, Field(ge=1)] = 1
    discipline: Literal["fifo", "sjf"] = "fifo"
    assignment: Literal["centrality", "shuffled"] = "centrality"
    """`shuffled` assigns the resources at random, so that centrality reveals nothing of them."""
    seed: Seed = 0
    """Selects the random assignment; the agent never sees it."""


class CloudResources(ScenarioTable):
    """The Cloud: a node with a queue that is never an action."""

    ipt: Positive
    ram: Positive = 64.0
    servers: Annotated[int, Field(ge=1)] = 1
    discipline: Literal["fifo", "sjf"] = "fifo"


class Application(ScenarioTable):
    """An application, and so a category of workloads."""

    name: Name
    instructions: Positive
    bytes_up: NotNegative
    bytes_down: NotNegative
    deadline: Positive | None = None
    """For the Fog loop, in time units. Only the evaluation uses it: no participant receives it."""


class Loops(ScenarioTable):
    """The Cloud loop: the share of workloads forwarded to the Cloud, and the share fed back."""

    to_cloud: Share = 0.1
    feedback: Share = 0.5


# --- workload ----------------------------------------------------------------------------------


class PoissonSources(ScenarioTable):
    """A source per (cluster, application); gaps are exponential of mean `scale` (the paper's β)."""

    kind: Literal["poisson"]
    scale: Positive


class DeterministicSources(ScenarioTable):
    """A source per (cluster, application) that emits every `scale` time units."""

    kind: Literal["deterministic"]
    scale: Positive
    phase: Literal["spread", "together"] = "spread"


class TraceColumns(ScenarioTable):
    """Names of the trace's columns; only the time is required."""

    time: str
    demand: str | None = None
    category: str | None = None
    cluster: str | None = None


class TraceSources(ScenarioTable):
    """Real arrivals, replayed from a CSV or Parquet file."""

    kind: Literal["trace"]
    file: str
    columns: TraceColumns
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
    weight: Positive
    indifference: NotNegative = 0.05
    preference: NotNegative = 0.2
    veto: Positive | None = None

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
    queue: ElectreCriterion

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
    seed: int = 1
    """Any integer. A participant's seed is derived from it one-way, but a small one can be found by
    trying all; only one of about 128 random bits hides the other participants' seeds."""
    horizon: Positive = 10_000.0
    count: Annotated[CountKind, Field(strict=False)] = CountKind.WAITING
    disclosure: Literal["none", "total", "count", "full"] = "count"
    topology: AnyTopology
    roles: Roles | None = None
    links: Links = Links()
    fog: FogResources
    cloud: CloudResources
    applications: list[Application] = Field(min_length=1)
    loops: Loops = Loops()
    sources: AnySources
    service: Service = Service()
    electre: ElectreSettings = Field(default_factory=_default_electre)
    events: list[dict[str, Any]] = []
    """Reserved for timed changes."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.events:
            raise ValueError("events: timed events are not supported yet; remove the key")
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
            whole = isinstance(value, int)  # else it is the table of that name
            dotted = short[key] if key in short and whole else key.replace("__", ".")
            overrides[dotted] = value
        for key, value in overrides.items():
            if isinstance(value, BaseModel):
                overrides[key] = value.model_dump(mode="json", exclude_unset=True)
        return load_scenario(self.model_dump(mode="json", exclude_unset=True), overrides)
