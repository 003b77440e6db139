"""The plan of `fogveil reproduce`: which agents are trained, which runs evaluate them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.learning.training_state import AGENT_FILE
from fogveil.core.errors import InputError
from fogveil.testbed.experiments.comparison import Comparison
from fogveil.testbed.experiments.reproduce.methods import METHODS, PAPER, STRESS, Method
from fogveil.testbed.scenario import Scenario, load_scenario

OTHERS = ("few", "many", "wide", "narrow", "far", "busy", "idle", "mixed")
GEANT = Path("topologies", "Geant2012.graphml")
"""In the folder of real data, which is not part of the package."""
RATES = (200.0, 150.0, 100.0)
LIGHT, HEAVY = RATES[0], RATES[-1]
HORIZONS = (10_000.0, 100_000.0)
COUNTS = ("in_system", "waiting")
SERVICES = {
    "exponential": {"distribution": "exponential"},
    "erlang": {"distribution": "erlang", "shape": 4},
}
PLRL = ("plrl-edql", "plrl-ql", "plrl-ed")
OURS = ("veil", "veil-total")
"""Trained once per kind of count, at the highest rate, and evaluated everywhere."""
OWN_DELAY = "own-delay"
"""veil-total without the delay that a decision causes to others in its reward: an ablation."""
LONG_EPISODES = 60_000.0
"""For veil-total, which begins every episode without knowledge of any node."""

TOTAL_SEEDS = (4, 2)
"""Evaluation seeds of each training of veil-total, by horizon: a run takes seconds."""


class TrainingSet(NamedTuple):
    """Trainings that differ in rate, seed and kind of count."""

    scenario: str
    agent: str
    rates: tuple[float, ...]
    seeds: Iterable[int]
    share: float = 1.0
    """Of the agent's own length, which for the paper's agents is the paper's."""
    counts: tuple[str, ...] = ("waiting",)
    variant: str = ""

    def describe(self) -> tuple[str, ...]:
        """Return the set in words: scenario, agent, rates, seeds, length."""
        rates = ", ".join(f"{rate:g}" for rate in self.rates)
        seeds = ", ".join(map(str, self.seeds))
        counts = "" if len(self.counts) == 1 else f" ({' and '.join(self.counts)} counts each)"
        length = "full" if self.share == 1 else f"short: {self.share:.0%}"
        agent = " ".join(filter(None, (self.agent, self.variant)))
        return self.scenario, agent, rates, seeds + counts, length


TRAINING_COLUMNS = ("scenario", "agent", "β", "training seeds", "length")


class Scale(NamedTuple):
    """How much is trained and evaluated, and where the results go."""

    quick: bool
    out: Path
    docs: Path
    """The folder of results.md and images/results."""
    seeds: int
    """Evaluation runs of each method, rate and horizon."""
    sets: tuple[TrainingSet, ...]


FULL = Scale(
    quick=False,
    out=Path("runs/reproduce"),
    docs=Path("docs"),
    seeds=10,
    sets=(
        TrainingSet(PAPER, "parl", RATES, range(31, 36)),
        TrainingSet(PAPER, "plrl-edql", RATES, range(31, 34)),
        *(TrainingSet(PAPER, name, (HEAVY,), range(31, 34)) for name in PLRL[1:]),
        *(TrainingSet(PAPER, name, RATES[:-1], (31,)) for name in PLRL[1:]),
        TrainingSet(STRESS, "parl", RATES, (1, 2)),
        TrainingSet(STRESS, "veil", (HEAVY,), (1, 2, 3), counts=COUNTS),
        TrainingSet(STRESS, "veil-total", (HEAVY,), range(1, 6)),
        TrainingSet(STRESS, "veil-total", (HEAVY,), (1,), variant=OWN_DELAY),
    ),
)
QUICK = Scale(
    quick=True,
    out=Path("runs/reproduce-quick"),
    docs=Path("runs/reproduce-quick"),
    seeds=3,
    sets=(
        TrainingSet(PAPER, "parl", RATES, (31, 32), 0.25),
        *(TrainingSet(PAPER, name, RATES, (31,), 0.2) for name in PLRL),
        TrainingSet(STRESS, "parl", RATES, (1,), 0.2),
        TrainingSet(STRESS, "veil", (HEAVY,), (1,), 0.5, counts=COUNTS),
        TrainingSet(STRESS, "veil-total", (HEAVY,), (1,), 0.25),
    ),
)


class PlannedTraining(NamedTuple):
    """One training."""

    scenario: str
    agent: str
    rate: float
    seed: int
    share: float
    count_kind: str
    variant: str
    out: Path

    @property
    def folder(self) -> Path:
        """The training's folder; its name ends in the seed."""
        variant = self.count_kind if self.agent in OURS else f"{self.rate:g}"
        variant = "-".join(filter(None, (variant, self.variant)))
        return self.out / "training" / f"{self.scenario}-{self.agent}-{variant}-{self.seed}"

    @property
    def light(self) -> Path:
        """The trained agent's file."""
        return self.folder / AGENT_FILE

    @property
    def finished(self) -> bool:
        """Whether the trained agent exists."""
        return self.light.exists()

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The agent's own, with its share of decisions."""
        own = find_agent(self.agent).defaults
        lengths = {
            "training_steps": max(round(own.training_steps * self.share), 1),
            "buffer_capacity": max(round(own.buffer_capacity * self.share), 200),
        }
        if self.variant == OWN_DELAY:
            lengths["reward_reach"] = 0
        return own.model_copy(update=lengths)

    def load_scenario(self) -> Scenario:
        """Return the scenario of the training: what `fogveil train` makes of the same options."""
        overrides: dict[str, Any] = {
            "sources.scale": self.rate,
            "seed": self.seed,
            "disclosure": "full",
        }
        if self.agent in OURS:
            overrides["count"] = self.count_kind
        if self.agent == "veil-total":
            overrides |= {"horizon": LONG_EPISODES, "disclosure": "total"}
        return load_scenario(self.scenario, overrides)


class Evaluation(NamedTuple):
    """The runs of one method, or of one training of it, in one section of the page."""

    section: str
    method: str
    training: PlannedTraining | None
    comparison: Comparison

    @property
    def ready(self) -> bool:
        """Whether the agent that it runs is there."""
        return self.training is None or self.training.finished


class Plan(NamedTuple):
    """All trainings and all evaluations."""

    scale: Scale
    trainings: list[PlannedTraining]
    evaluations: list[Evaluation]

    def trainings_of(self, scenario: str, agent: str, rate: float) -> list[PlannedTraining]:
        """Return the trainings of an agent at one rate."""
        key = (scenario, agent, rate)
        return [t for t in self.trainings if (t.scenario, t.agent, t.rate) == key]


def make_plan(scale: Scale, data: Path | None) -> Plan:
    """Return the plan; the scenario geant is in it where a folder of real data is given."""
    trainings = [
        PlannedTraining(s.scenario, s.agent, rate, seed, s.share, count, s.variant, scale.out)
        for s in scale.sets
        for seed in s.seeds
        for rate in s.rates
        for count in s.counts
    ]
    plan = Plan(scale, trainings, [])
    for scenario in (PAPER, STRESS):
        plan.evaluations.extend(_of_environment(plan, scenario))
    plan.evaluations.extend(_of_totals(plan))
    for count in COUNTS:
        plan.evaluations.extend(_of_veil(plan, count, data))
    return plan


def check_data(data: Path | None) -> None:
    """Refuse a folder of real data without the network of the scenario geant."""
    if data is not None and not (data / GEANT).is_file():
        raise InputError(f"{data}: expected {GEANT} in this folder (--data or FOGVEIL_DATA)")


def _of_environment(plan: Plan, scenario: str) -> Iterator[Evaluation]:
    """Yield every method at every rate and horizon of one environment."""
    for method in METHODS:
        if scenario not in method.scenarios:
            continue
        overrides = _with_veto(scenario, method) if method.veto is not None else {}
        if not method.trained:
            spec = method.policy or method.name
            seeds = min(plan.scale.seeds, method.most_seeds)
            comparison = _compare(
                *(plan.scale, scenario, scenario, spec), overrides=overrides, seeds=seeds
            )
            yield Evaluation(scenario, method.name, None, comparison)
        for training in plan.trainings:
            if method.trained and (training.scenario, training.agent) == (scenario, method.name):
                spec, rates = str(training.light), (training.rate,)
                comparison = _compare(plan.scale, scenario, scenario, spec, rates)
                yield Evaluation(scenario, method.name, training, comparison)


def _with_veto(scenario: str, method: Method) -> dict[str, Any]:
    criteria = load_scenario(scenario).electre.model_dump()["criteria"]
    for criterion in criteria:
        if criterion["name"] == "service":
            criterion["veto"] = method.veto
    return {"electre.criteria": criteria}


def _of_totals(plan: Plan) -> Iterator[Evaluation]:
    """Yield veil-total by training, its ablation, and its rivals, in `stress`."""
    scale = plan.scale
    for horizon, most in zip(HORIZONS, TOTAL_SEEDS, strict=True):
        section = total_section(horizon)
        options: dict[str, Any] = {"horizons": (horizon,), "seeds": min(most, scale.seeds)}
        for name in ("jsq", "ti-setr", "setr"):
            comparison = _compare(scale, section, STRESS, name, **options)
            yield Evaluation(section, name, None, comparison)
        for training in plan.trainings:
            if training.agent == "veil-total":
                spec = str(training.light)
                comparison = _compare(scale, section, STRESS, spec, **options)
                method = " ".join(filter(None, ("veil-total", training.variant)))
                yield Evaluation(section, method, training, comparison)


def total_section(horizon: float) -> str:
    """Return the section of veil-total's trainings at one horizon."""
    return f"total-{horizon:g}"


def _of_veil(plan: Plan, count: str, data: Path | None) -> Iterator[Evaluation]:
    """Yield veil and its rivals in `stress`, in other scenarios and with random service."""
    scale, short = plan.scale, HORIZONS[:1]
    veils = [t for t in plan.trainings if (t.agent, t.count_kind) == ("veil", count)]

    def all_of(section: str, scenario: str, rivals: Iterable[str], **options: Any) -> Any:
        for name in rivals:
            yield Evaluation(
                section, name, None, _compare(scale, section, scenario, name, **options)
            )
        for training in veils:
            spec = str(training.light)
            yield Evaluation(
                section, "veil", training, _compare(scale, section, scenario, spec, **options)
            )

    rivals, counted = ("jsq", "ci-setr", "setr"), {"count": count}
    yield from all_of(f"veil-{count}", STRESS, rivals, overrides=counted)
    others = dict.fromkeys(OTHERS, counted)
    if data:
        others["geant"] = {**counted, "topology.file": str((data / GEANT).resolve())}
    for name, overrides in others.items():
        yield from all_of(
            *(f"others-{count}/{name}", name, rivals),
            rates=(None,),
            horizons=short,
            overrides=overrides,
        )
    for name, service in SERVICES.items():
        random = {**counted, "service": service}
        methods = ("sed", *rivals)
        yield from all_of(f"{name}-{count}", STRESS, methods, horizons=short, overrides=random)


def _compare(
    scale: Scale,
    section: str,
    scenario: str,
    policy: str,
    rates: tuple[float | None, ...] = RATES,
    horizons: tuple[float, ...] = HORIZONS,
    overrides: dict[str, Any] | None = None,
    seeds: int | None = None,
) -> Comparison:
    out = scale.out / section
    seeds = seeds or scale.seeds
    return Comparison(scenario, overrides or {}, (policy,), rates, horizons, seeds, out)
