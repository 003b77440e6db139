"""`fogveil run --repeat RUN`: what an earlier run was, from its run.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from fogveil.agent.learning.adaptation import AdaptationRequest, parse_adapt
from fogveil.core.errors import FogveilError, InputError
from fogveil.testbed.scenario import load_scenario

RUN_FILE = "run.json"


@dataclass(frozen=True)
class _Federated:
    window: int = 0
    source_processes: int = 1
    draw: int = 0


@dataclass(frozen=True)
class _Adapt:
    """How the agent of the run went on learning."""

    when: str
    hyperparameters: dict[str, Any]

    @property
    def request(self) -> AdaptationRequest:
        return AdaptationRequest(parse_adapt(self.when), self.hyperparameters)


@dataclass(frozen=True)
class EarlierRun:
    """What run.json says of a run that is to be repeated."""

    scenario: dict[str, Any]
    """In full, with the seed."""
    policy: str
    mode: Literal["embedded", "federated", "docker"]
    run_hash: str
    federated: _Federated = _Federated()
    adapt: _Adapt | None = None

    def check_repeated(self, result: dict[str, Any], source: Path) -> str | None:
        """Say that a result has the same run hash; an error if not. None if it is another run."""
        # As scenarios, not as texts: one of an earlier version lacks keys that have defaults now.
        same = load_scenario(result["scenario"]) == load_scenario(self.scenario)
        learns = asdict(self.adapt) if self.adapt else None
        if not same or result["policy"] != self.policy or result.get("adapt") != learns:
            return None
        if result["run_hash"] != self.run_hash:
            raise FogveilError(
                f"{source}: the repeated run has another run hash, not {self.run_hash}: the "
                "policy, a file that the scenario names, or a library has changed since"
            )
        return f"the run hash is that of {source}"


def read_earlier_run(path: Path) -> EarlierRun:
    """Read a run's folder, or its run.json."""
    file = path / RUN_FILE if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        run = TypeAdapter(EarlierRun).validate_python(content)
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not describe a run"
        raise InputError(
            f"--repeat {path}: {file} cannot be used: {reason}; name the --out folder of a run"
        ) from error
    if run.federated.draw:
        raise InputError(
            f"--repeat {path}: the run is a later draw of its testbed, and cannot be repeated alone"
        )
    return run
