"""The keys of a scenario file, their types, bounds and defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fogveil.disclosure import CountKind

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]


class Model(BaseModel):
    """A table of the file: unknown keys are refused, nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# --- numbers that are given, drawn or spread --------------------------------------------------


class Uniform(Model):
    """Drawn for each link, uniformly between two bounds."""

    uniform: tuple[Positive, Positive] = Field(strict=False)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.uniform[0] > self.uniform[1]:
            raise ValueError("expected the lower bound first")
        return self


class Attribute(Model):
    """Read from an attribute of the graph file's links, times a factor."""

    attribute: str
    factor: Positive = 1.0
    default: Positive | None = None


class Coordinates(Model):
    """The great-circle distance between the nodes of the graph file, in simulated time."""

    km_per_unit: Positive
    longitude: str = "Longitude"
    latitude: str = "Latitude"
    least: Positive = 0.1


class Linear(Model):
    """Spread evenly over the Fog nodes, the first value for the most central node."""

    linear: tuple[Positive, Positive] = Field(strict=False)


PerNode = Positive | Linear | list[Positive]


# --- topology ----------------------------------------------------------------------------------


class GeneratedTopology(Model):
    """An Internet autonomous-system graph, as in the paper."""

    kind: Literal["internet_as"]
    nodes: Annotated[int, Field(ge=10, le=100_000)]
    seed: Seed = 0


class FileTopology(Model):
    """A graph of the user's own: GraphML, GML or node-link JSON."""

    kind: Literal["file"]
    file: str


class ExplicitNode(Model):
    """A node by name, with its role; without one it only relays."""

    name: Name
    role: Literal["cloud", "fog", "cluster", "relay"] = "relay"


class ExplicitLink(Model):
    """A link between two nodes of the list."""

    between: tuple[Name, Name] = Field(strict=False)
    bandwidth: Positive | None = None
    propagation: Positive | None = None


class ExplicitTopology(Model):
    """Nodes and links listed in the scenario itself."""

    kind: Literal["explicit"]
    nodes: list[ExplicitNode] = Field(min_length=3)
    links: list[ExplicitLink] = Field(min_length=2)


Topology = Annotated[
    GeneratedTopology | FileTopology | ExplicitTopology, Field(discriminator="kind")
]


class Roles(Model):
    """How many nodes of each role are taken by betweenness centrality (the Cloud is one)."""

    fog: Annotated[int, Field(ge=1)]
    clusters: Annotated[int, Field(ge=1)]
    seed: Seed = 0
    """Which Fog nodes have a cluster, where not all of them do."""


class Links(Model):
    """Bandwidth (bytes per time unit) and propagation delay of the links that do not say."""

    bandwidth: Positive | Uniform | Attribute = 100.0
    propagation: Positive | Uniform | Attribute | Coordinates = 1.0
    seed: Seed = 0


# --- providers ---------------------------------------------------------------------------------


class FogResources(Model):
    """The providers' secrets: speed (instructions per time unit), memory, servers, discipline."""

    ipt: PerNode
    ram: PerNode = 16.0
    servers: Annotated[int, Field(ge=1)] = 1
    discipline: Literal["fifo", "sjf"] = "fifo"
    assignment: Literal["centrality", "shuffled"] = "centrality"
    """`shuffled` deals the resources out at random, so that centrality tells nothing of them."""
    seed: Seed = 0
    """How shuffled resources are dealt out; the agent never sees it."""


class CloudResources(Model):
    """The Cloud: a node with a queue that is never an action."""

    ipt: Positive
    ram: Positive = 64.0
    servers: Annotated[int, Field(ge=1)] = 1
    discipline: Literal["fifo", "sjf"] = "fifo"


class Application(Model):
    """An application, and so a category of workloads."""

    name: Name
    instructions: Positive
    bytes_up: NotNegative
    bytes_down: NotNegative


class Loops(Model):
    """The Cloud loop: the share of workloads that goes on to the Cloud, and that is fed back."""

    to_cloud: Share = 0.1
    feedback: Share = 0.5


# --- workload ----------------------------------------------------------------------------------


class PoissonSources(Model):
    """A source per (cluster, application); gaps are exponential of mean `scale` (the paper's β)."""

    kind: Literal["poisson"]
    scale: Positive


class DeterministicSources(Model):
    """A source per (cluster, application) that emits every `scale` time units."""

    kind: Literal["deterministic"]
    scale: Positive
    phase: Literal["spread", "together"] = "spread"


class TraceColumns(Model):
    """Which columns of the trace say what; only the time is needed."""

    time: str
    demand: str | None = None
    category: str | None = None
    cluster: str | None = None


class TraceSources(Model):
    """Real arrivals, replayed from a CSV or Parquet file."""

    kind: Literal["trace"]
    file: str
    columns: TraceColumns
    time_scale: Positive = 1.0
    """Simulated time units per unit of the time column (per second, for time stamps)."""
    demand_scale: Positive = 1.0
    """Instructions per unit of the demand column."""


Sources = Annotated[
    PoissonSources | DeterministicSources | TraceSources, Field(discriminator="kind")
]


class Service(Model):
    """Service time = factor · instructions / IPT; the factor has mean 1 and belongs to the job."""

    distribution: Literal["deterministic", "exponential", "erlang"] = "deterministic"
    shape: Annotated[int, Field(ge=1, le=1000)] = 1

    @model_validator(mode="after")
    def _shape_is_erlangs(self) -> Self:
        if self.shape != 1 and self.distribution != "erlang":
            raise ValueError("shape is for the erlang distribution only")
        return self


# --- policies' settings ------------------------------------------------------------------------


class Criterion(Model):
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


class ElectreSettings(Model):
    """What the ELECTRE policies weigh; `electre-queue` adds the criterion `queue`."""

    criteria: list[Criterion] = Field(min_length=1)
    queue: Criterion

    @model_validator(mode="after")
    def _queue_only_where_asked(self) -> Self:
        if self.queue.name != "queue" or any(c.name == "queue" for c in self.criteria):
            raise ValueError("expected the criterion 'queue' under electre.queue and only there")
        return self


def _default_electre() -> ElectreSettings:
    """Return weights and thresholds calibrated on the paper's environment; none are published."""
    weights: dict[Any, float] = {"service": 1, "ram": 1, "latency": 4, "bandwidth": 3, "hops": 3}
    criteria = [
        Criterion(
            name=name,
            weight=float(weight),
            indifference=0.3,
            preference=0.5,
            veto=0.6 if name == "service" else None,
        )
        for name, weight in weights.items()
    ]
    queue = Criterion(name="queue", weight=12.0, indifference=0.05, preference=0.2)
    return ElectreSettings(criteria=criteria, queue=queue)


# --- the whole ---------------------------------------------------------------------------------


class Scenario(Model):
    """A whole scenario, as one TOML file gives it."""

    name: Name
    seed: int = 1
    """Any whole number. From a small one the others can be found by trying all; one of 128 random
    bits keeps the providers' chance events from whoever knows only another participant's seed."""
    horizon: Positive = 10_000.0
    count: Annotated[CountKind, Field(strict=False)] = CountKind.WAITING
    disclosure: Literal["none", "total", "count", "full"] = "count"
    topology: Topology
    roles: Roles | None = None
    links: Links = Links()
    fog: FogResources
    cloud: CloudResources
    applications: list[Application] = Field(min_length=1)
    loops: Loops = Loops()
    sources: Sources
    service: Service = Service()
    electre: ElectreSettings = Field(default_factory=_default_electre)
    events: list[dict[str, Any]] = []
    """Reserved for changes at given times."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.events:
            raise ValueError("events: timed events are not supported yet")
        names = [application.name for application in self.applications]
        if len(set(names)) < len(names):
            raise ValueError("applications: expected different names")
        if self.topology.kind != "explicit" and self.roles is None:
            raise ValueError("roles: expected [roles] with the numbers of fog and clusters")
        if self.topology.kind == "explicit" and self.roles is not None:
            raise ValueError("roles: an explicit topology gives each node its role itself")
        return self
