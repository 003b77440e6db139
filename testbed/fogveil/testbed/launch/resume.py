"""Going on with a federated run whose launcher was lost: what that takes is kept in its folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fogveil.agent.learning.adaptation import AdaptationRequest, parse_adapt
from fogveil.agent.policies import file_of
from fogveil.core.errors import InputError
from fogveil.core.files import write_private
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario import Scenario

STANDING = "resume.json"
"""The file in the run's folder; like the folder itself it is the experimenter's alone."""
NOT_KEPT = ("training", "adaptation", "product", "paced")


@dataclass(frozen=True)
class Interrupted:
    """A run that did not come to its end."""

    run: str
    """Its random name."""
    scenario: Scenario
    plan: Plan


def keep_standing(folder: Path, run: str, scenario: Scenario, plan: Plan) -> None:
    """Keep what it takes to go on with a run."""
    asked = plan.adaptation
    kept = {key: value for key, value in asdict(plan).items() if key not in NOT_KEPT}
    kept["policies"] = [_absolute(spec) for spec in plan.policies]
    adaptation = {"adapt": asked.adapt.value, "changes": dict(asked.changes)} if asked else None
    content = {
        "run": run,
        "scenario": scenario.model_dump(mode="json"),
        "plan": kept,
        "adaptation": adaptation,
    }
    write_private(folder / STANDING, json.dumps(content))


def _absolute(spec: str) -> str:
    """Return a policy's spec for whoever resumes the run in another folder."""
    path = file_of(spec)
    if path is None:
        return spec
    return f"{path.resolve()}{spec.removeprefix(str(path))}"


def read_standing(folder: Path) -> Interrupted:
    """Read what was kept of a run; InputError where there is nothing to go on with."""
    path = folder / STANDING
    if not path.exists():
        ended = (folder / "run.json").exists()
        raise InputError(
            f"{folder}: the run has come to its end: there is nothing to resume"
            if ended
            else f"{folder}: no run to resume: name the --out folder of a federated run that was "
            "started with --on-loss recover"
        )
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        plan = dict(content["plan"])
        known = {field.name for field in fields(Plan)}
        asked = content["adaptation"]
        adaptation = (
            AdaptationRequest(parse_adapt(asked["adapt"]), asked["changes"]) if asked else None
        )
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in plan.items()
            if key in known
        }
        scenario = Scenario.model_validate(content["scenario"])
        return Interrupted(content["run"], scenario, Plan(**values, adaptation=adaptation))
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise InputError(
            f"{path}: cannot be read: it was written by another version, or damaged; run the "
            "scenario again"
        ) from error


def forget_standing(folder: Path) -> None:
    """Forget a run that has come to its end."""
    (folder / STANDING).unlink(missing_ok=True)
