"""The paper's table of hyper-parameters; a TOML file can change every value."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fogveil.core.errors import InputError
from fogveil.core.validation_text import describe_fault

Positive = Annotated[int, Field(ge=1)]


class Hyperparameters(BaseModel):
    """What the paper tuned, by the paper's names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    discount_factor: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Weight of the next step's value against this step's reward."""
    epsilon_decay_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    """Share of the training steps over which epsilon falls linearly."""
    epsilon_first: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Chance of a random action at the first training step."""
    epsilon_last: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Chance of a random action once epsilon has fallen."""
    buffer_capacity: Annotated[int, Field(ge=200)] = 1_000_000
    """Transitions that the replay buffer holds."""
    buffer_population: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the capacity that is filled before training begins."""
    population_epsilon: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Chance of a random action while the buffer is filled."""
    distribution_decay: Annotated[float, Field(gt=0, le=0.99)] = 0.5
    """What PARL's distribution d keeps of its past at each placement; Algorithm 1 halves it."""
    reward_reach: Annotated[int, Field(ge=0)] = 40
    """For veil and veil-total: how many jobs behind a job are asked how much it delayed them."""
    batch_size: Positive = 50
    """Transitions drawn from the buffer for one training step."""
    train_period: Positive = 4
    """Decision steps between two training steps."""
    target_update_period: Positive = 2000
    """Decision steps between two copies of the online network to the target network."""
    layers: tuple[Positive, ...] = (256, 128, 64)
    """Neurons of the hidden layers, first to last."""
    learning_rate: Annotated[float, Field(gt=0)] = 2.5e-4
    """Step size of Adam."""
    training_steps: Positive = 150_000
    """Updates of the online network in the phase `training`."""

    @property
    def population_decisions(self) -> int:
        """Decisions of the phase `buffer population`."""
        return int(self.buffer_capacity * self.buffer_population)

    @property
    def training_decisions(self) -> int:
        """Decisions of the phase `training`."""
        return self.training_steps * self.train_period

    def epsilon(self, training_step: int) -> float:
        """Return the chance of a random action after so many training steps.

        >>> [round(Hyperparameters().epsilon(step), 2) for step in (0, 56_250, 112_500, 150_000)]
        [1.0, 0.51, 0.01, 0.01]
        """
        progress = min(training_step / (self.epsilon_decay_share * self.training_steps), 1.0)
        return self.epsilon_first + progress * (self.epsilon_last - self.epsilon_first)


H = TypeVar("H", bound=Hyperparameters)


def read_hyperparameters(path: Path | None, defaults: H) -> H:
    """Return the defaults with the values that a TOML file changes."""
    return change_hyperparameters(defaults, read_changes(path), str(path))


def read_changes(path: Path | None) -> dict[str, Any]:
    """Return the values of a TOML file as they are written."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}") from error


def change_hyperparameters(defaults: H, changes: Mapping[str, Any], where: str) -> H:
    """Return the defaults with other values; an error says where they come from."""
    try:
        return type(defaults).model_validate({**defaults.model_dump(), **changes})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(map(str, fault["loc"]))
        if fault["type"] == "extra_forbidden":
            known = ", ".join(type(defaults).model_fields)
            raise InputError(
                f"{where}: no hyper-parameter is called {key}; there are {known}"
            ) from error
        raise InputError(f"{where}: {key}: {describe_fault(fault)}") from error
