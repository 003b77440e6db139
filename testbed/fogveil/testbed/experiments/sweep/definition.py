"""What a sweep varies: the keys of its TOML file, checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from fogveil.core.errors import InputError
from fogveil.testbed.scenario.load import ALIASES, describe_first_fault, find_scenario, plain_values
from fogveil.testbed.scenario.tables import ScenarioTable

Seeds = Annotated[int, Field(ge=1, strict=True)] | Annotated[list[int], Field(min_length=1)]
Point = dict[str, Any]
"""Values by dotted key of the scenario."""


class SweepTable(ScenarioTable):
    """A table of the file."""

    model_config = ConfigDict(strict=False)


class TrainedAgent(SweepTable):
    """An agent that is trained first, then evaluated like a policy."""

    agent: str
    seeds: Seeds = 1
    """Of trainings: a number of them, or a list."""
    hyperparameters: dict[str, Any] = Field(default_factory=dict)
    at: Point | None = None
    """Where it is trained: once, with these values of keys. Without it, at every point."""
    label: str = ""
    """Its name in the table, if it is not the agent's."""

    @property
    def training_seeds(self) -> list[int]:
        """The seeds as a list."""
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else self.seeds


class Sweep(SweepTable):
    """A grid, or listed points, over the keys of one or several scenarios."""

    scenario: str | Annotated[list[str], Field(min_length=1)]
    """Files, relative to the sweep's own, or names of shipped scenarios."""
    policies: list[str] = Field(default_factory=list)
    agents: list[TrainedAgent] = Field(default_factory=list)
    seeds: Seeds = 5
    """Of runs: a number of them, from the scenario's own seed on, or a list."""
    set: Point = Field(default_factory=dict)
    """Keys that have one value everywhere."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(default_factory=dict)
    """Keys with their values: every combination is a point."""
    points: list[Point] = Field(default_factory=list)
    """Points one by one, each combined with the whole grid."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not self.policies and not self.agents:
            raise ValueError("policies: expected at least one policy, or a table [[agents]]")
        listed = list(dict.fromkeys(key for point in self.points for key in point))
        if "seed" in {*self.set, *self.grid, *listed}:
            raise ValueError("seed: give the seeds of runs as the key seeds")
        both = [key for key in listed if key in self.grid]
        if both:
            raise ValueError(f"points: {both[0]} is in the grid as well; name it in one place")
        _check_keys([*self.set, *self.grid, *listed])
        repeated: dict[str, Any] = {"policies": self.policies, "points": self.points}
        repeated |= {"scenario": self.scenarios, "seeds": self.seeds}
        repeated |= {f"grid.{key}": values for key, values in self.grid.items()}
        repeated |= {f"agents.{agent.agent}.seeds": agent.seeds for agent in self.agents}
        for key, values in repeated.items():
            if isinstance(values, list) and any(values.count(value) > 1 for value in values):
                raise ValueError(f"{key}: expected different values, two are equal")
        labels = [agent.label or agent.agent for agent in self.agents]
        labels += [name for name in self.policies if name in labels]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(f"agents: two are called {twice[0]}; give one a label of its own")
        return self

    @property
    def scenarios(self) -> list[str]:
        """The scenarios as a list."""
        return [self.scenario] if isinstance(self.scenario, str) else self.scenario

    def all_points(self) -> Iterator[Point]:
        """Yield every point: the values of the keys that vary.

        >>> sweep = Sweep(scenario="tiny", policies=["jsq"], grid={"rate": [50, 100], "fog": [3]})
        >>> list(sweep.all_points())
        [{'rate': 50, 'fog': 3}, {'rate': 100, 'fog': 3}]
        """
        for listed in self.points or [{}]:
            for values in product(*self.grid.values()):
                yield {**listed, **dict(zip(self.grid, values, strict=True))}

    @property
    def varied(self) -> list[str]:
        """The keys that vary, in the order of the file."""
        keys = [*(key for point in self.points for key in point), *self.grid]
        return list(dict.fromkeys(keys))


def _check_keys(keys: list[str]) -> None:
    """Refuse a key that is named twice, by a short name or as a part of another."""
    names: dict[str, str] = {}
    for key in keys:
        name = ALIASES.get(key, key)
        if name in names:
            raise ValueError(f"{key}: is {names[name]}, which is given as well: name one")
        names[name] = key
    for name, key in names.items():
        for other, part in names.items():
            if other.startswith(f"{name}."):
                raise ValueError(f"{part}: is a part of {key}, which is given as well")


def read_sweep(source: Path | Mapping[str, Any]) -> Sweep:
    """Read and check a sweep from its file or its content."""
    if isinstance(source, Mapping):
        return _check(plain_values(dict(source)), "sweep:")
    if not isinstance(source, Path):
        raise InputError(f"sweep: expected a TOML file or a dictionary, got {source!r}")
    source = source.resolve()
    try:
        content = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{source}: is not TOML: {error}") from error
    sweep = _check(content, f"{source}:")
    beside = [_beside(name, source.parent) for name in sweep.scenarios]
    own = [_policy_beside(name, source.parent) for name in sweep.policies]
    return sweep.model_copy(update={"scenario": beside, "policies": own})


def _check(content: dict[str, Any], where: str) -> Sweep:
    try:
        return Sweep.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{where} {describe_first_fault(error, content)}") from error


def _beside(name: str, folder: Path) -> str:
    """Return a scenario's file relative to the sweep's; shipped names stay as they are."""
    return str(folder / name) if (folder / name).is_file() else str(find_scenario(name))


def _policy_beside(spec: str, folder: Path) -> str:
    """Return a policy's or an agent's file relative to the sweep's; names stay as they are."""
    file = folder / (spec if spec.endswith(".npz") else spec.rpartition(":")[0])
    return str(folder / spec) if file.is_file() else spec
