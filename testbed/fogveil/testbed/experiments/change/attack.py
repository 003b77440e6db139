"""Attackers on a secret upgrade: who infers it from what it sees, and after how many decisions."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fogveil.agent.policy import Level
from fogveil.core.files import write_private
from fogveil.testbed.experiments.change.plan import KINDS, OUT, SEEDS, Kind
from fogveil.testbed.privacy.leakage.after_change import Course, follow, summarise
from fogveil.testbed.privacy.leakage.meter import AttackPlan
from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.source_tree import code_digest
from fogveil.testbed.workers.files import FileList, Located

DECISIONS = 1500
"""Observed since the upgrade."""
UPGRADES = KINDS[:2]
"""Of the fastest node, and of one in the middle, which becomes the fastest."""


class Attacker(NamedTuple):
    """What an attacker sees, and by which policy it places; None places in order to learn."""

    level: Level
    policy: str | None
    seconds: float
    """CPU time of a run when last measured."""


ATTACKERS = (
    Attacker(Level.COUNT, "ci-setr", 2.0),
    Attacker(Level.COUNT, "jsq", 2.0),
    Attacker(Level.COUNT, None, 2.0),
    Attacker(Level.TOTAL, "ti-setr", 25.0),
)


@dataclass(frozen=True)
class AttackRun:
    """One run that an attacker observes."""

    kind: Kind
    attacker: Attacker
    seed: int

    name = ""

    @property
    def plan(self) -> AttackPlan:
        """The plan of the leakage meter: speeds as they are, the seeds of the other runs."""
        return AttackPlan(
            self.kind.scenario(1, self.attacker.level.word),
            self.attacker.level,
            DECISIONS,
            self.attacker.policy,
            permutations=SEEDS,
            as_given=True,
        )

    @property
    def path(self) -> Path:
        """The result's file; its name changes with whatever could change the result."""
        code = code_digest(frozenset({follow.__module__, "fogveil.agent.policies.ci_setr"}))
        content = [self.plan.scenario.model_dump_json(), self.attacker[:2], DECISIONS, code]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
        policy = self.attacker.policy or "probing"
        return OUT / "attack" / f"{self.attacker.level.word}_{policy}_{self.seed}_{digest}.npz"

    def order(self) -> AttackRun:
        """Return itself: it has all that a worker needs."""
        return self

    def list_files(self, files: FileList) -> None:
        """Name nothing: all of it ships."""

    def compute(self, _located: Located) -> bytes:
        """Follow the attacker and return its course."""
        course = follow(self.plan, self.seed - 1)
        content = io.BytesIO()
        np.savez_compressed(content, **course._asdict())
        return content.getvalue()

    def keep(self, found: bytes) -> None:
        """Write the course."""
        with reporting_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_private(self.path, found)

    def read(self) -> Course:
        """Return the course that was kept."""
        with np.load(self.path) as file:
            course = {name: file[name] for name in Course._fields}
        return Course(**{**course, "before": int(course["before"])})


def attack_runs() -> list[AttackRun]:
    """Return the runs of all attackers."""
    return [
        AttackRun(kind, attacker, seed)
        for kind in UPGRADES
        for attacker in ATTACKERS
        for seed in range(1, SEEDS + 1)
    ]


def read_attacks() -> dict[str, list[dict[str, Any]]]:
    """Return what was found of each attacker by the title of the upgrade, once all are finished."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in UPGRADES:
        for attacker in ATTACKERS:
            runs = [AttackRun(kind, attacker, seed) for seed in range(1, SEEDS + 1)]
            result = summarise(runs[0].plan, [run.read() for run in runs])
            found.setdefault(kind.title, []).append(result)
    return found
