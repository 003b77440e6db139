"""The kinds of change that are measured, and what runs, and is trained, for each.

All of them happen to the scenario `paper` in the middle of a run, to its fastest node unless the
kind says otherwise: whoever places well uses that node most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.relearning import transfer_hyperparameters
from fogveil.testbed.experiments.comparison import Comparison
from fogveil.testbed.experiments.planned_work import TrainingFolder
from fogveil.testbed.scenario import Scenario, load_scenario

SCENARIO = "paper"
OUT = Path("runs/change")
RATE = 150.0
HORIZON = 20_000.0
AT = HORIZON / 2
"""When it changes."""
NODE, OTHER_NODE = "fog-10", "fog-5"
"""The fastest node, and one of the eight in the middle, which are hardly used at this load."""
BACK, NOTICE = 500.0, 50.0
"""After a crash: when the node is back, and when lost jobs are emitted again."""
SEEDS = 5
"""Evaluation runs, with the seeds 1, 2, …"""
TRAINING_SEEDS = (41, 42)
QUARTER = 4

ORACLE = "setr"
PARL, ON, AUTO = "parl", "parl --adapt", "parl --adapt=auto"
SCRATCH, TRANSFERRED = "parl from scratch", "parl transferred"
POLICIES = (ORACLE, "jsq", "ci-setr", "veil", "veil-total", PARL)
ADAPTING = {ON: "on", AUTO: "auto"}
RETRAINED = (SCRATCH, TRANSFERRED)
METHODS = (*POLICIES, *ADAPTING, *RETRAINED)
TOTAL = ("veil-total", PARL, *ADAPTING, *RETRAINED)
"""The methods of level `total`."""


@dataclass(frozen=True)
class Kind:
    """One kind of change."""

    name: str
    title: str
    events: tuple[dict[str, Any], ...]
    node: str | None = NODE
    """The node that changes."""
    after: dict[str, Any] | None = None
    """What the environment afterwards changes of `paper`; None where nothing is trained for it: it
    is `paper` as before, or little different."""
    loses: bool = False
    """Whether jobs are lost, which level `total` excludes."""
    in_system: bool = False
    """Whether counts have the job in service, too; for policies of level `count` alone."""

    @property
    def overrides(self) -> dict[str, Any]:
        """The scenario of its runs."""
        changes = {"sources.scale": RATE, "horizon": HORIZON, "events": list(self.events)}
        return changes | ({"count": "in_system"} if self.in_system else {})

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it is measured for."""
        left_out = (
            TOTAL if self.loses or self.in_system else RETRAINED if self.after is None else ()
        )
        return tuple(method for method in METHODS if method not in left_out)

    def scenario(self, seed: int, level: str) -> Scenario:
        """Return the scenario of one run, in which providers disclose a level."""
        return load_scenario(SCENARIO, {**self.overrides, "seed": seed, "disclosure": level})

    @property
    def comparison(self) -> Comparison:
        """The runs of policies that need no training."""
        return Comparison(
            file=SCENARIO,
            overrides=self.overrides,
            policies=tuple(policy for policy in POLICIES if policy in self.methods),
            rates=(None,),
            horizons=(HORIZON,),
            seeds=SEEDS,
            out=OUT,
        )


def _changed(name: str, title: str, node: str | None, **event: Any) -> Kind:
    """Return a kind whose environment stays as the event left it."""
    subject = {} if node is None else {"node": node}
    after = {"events": [{"at": 0.0, **event, **subject}]}
    return Kind(name, title, ({"at": AT, **event, **subject},), node, after)


def _crash(name: str, title: str, **jobs: Any) -> Kind:
    event = {"at": AT, "kind": "crash", "node": NODE, "back": AT + BACK, **jobs}
    return Kind(name, title, (event,), loses="notice" in jobs)


KINDS = (
    _changed("upgrade", "upgrade × 2", NODE, kind="speed", factor=2.0),
    Kind(
        "other-upgrade",
        "upgrade × 2 of a node little used",
        ({"at": AT, "kind": "speed", "node": OTHER_NODE, "factor": 2.0},),
        OTHER_NODE,
    ),
    _changed("downgrade", "downgrade ÷ 2", NODE, kind="speed", factor=0.5),
    _changed("departure", "departure", NODE, kind="leave"),
    Kind(
        "return",
        "return",
        (
            {"at": AT / 4, "kind": "leave", "node": NODE},
            {"at": AT, "kind": "join", "node": NODE},
        ),
    ),
    _crash("crash-recovered", "crash, jobs recovered", jobs="recovered"),
    _crash("crash-lost", "crash, jobs lost", jobs="lost", notice=NOTICE),
    Kind(
        "surge",
        "surge, β 150 → 100",
        ({"at": AT, "kind": "rate", "scale": 100.0},),
        None,
        {"sources.scale": 100.0},
    ),
    _changed("move", "a cluster moves", None, kind="move", cluster="cluster-8", to="fog-3"),
)
IN_SYSTEM = tuple(
    replace(kind, name=f"{kind.name}-in-system", after=None, in_system=True)
    for kind in KINDS
    if kind.name.endswith(("upgrade", "downgrade"))
)
"""Changes of speed where counts tell more: whether a node is idle."""


@dataclass(frozen=True)
class ChangeTraining(TrainingFolder):
    """A training of PARL in the environment after a change, from nothing or from what ships."""

    kind: Kind
    method: str
    seed: int

    @property
    def folder(self) -> Path:
        """The training's folder; its name ends in the seed."""
        word = self.method.rpartition(" ")[2]
        return OUT / "training" / f"{self.kind.name}-{word}-{self.seed}"

    @property
    def agent(self) -> str:
        """The agent's name."""
        return "parl"

    @property
    def hyperparameters(self) -> Hyperparameters:
        """A quarter of the paper's decisions from scratch, and a fifth of that transferred."""
        paper = Hyperparameters()
        quarter = paper.model_copy(
            update={
                "buffer_capacity": paper.buffer_capacity // QUARTER,
                "training_steps": paper.training_steps // QUARTER,
            }
        )
        if self.method == SCRATCH:
            return quarter
        return transfer_hyperparameters(quarter, replay=False)

    def load_scenario(self) -> Scenario:
        """Return the environment after the change, with the training's seed."""
        assert self.kind.after is not None
        overrides = {"sources.scale": RATE, **self.kind.after, "seed": self.seed}
        return load_scenario(SCENARIO, {**overrides, "disclosure": "total"})


def trainings() -> list[ChangeTraining]:
    """Return all trainings; those that take longest first."""
    return [
        ChangeTraining(kind, method, seed)
        for method in RETRAINED
        for kind in KINDS
        if kind.after is not None
        for seed in TRAINING_SEEDS
    ]
