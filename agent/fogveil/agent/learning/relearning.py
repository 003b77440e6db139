"""Learning that does not begin from nothing: after a transfer (--from), and at work (--adapt).

Both start from weights that place well already. So both explore little, and fill the buffer by what
they would do anyway: a long phase of random placements would spoil the delays of a working system,
and teach least about the states that matter. A file of hyper-parameters changes each value.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from fogveil.agent.learning.hyperparameters import Hyperparameters, Positive

TRANSFER_SHARE = 0.2
"""Share of the earlier training's steps that a transfer takes: the paper's authors report as
much later."""
TRANSFER_EPSILON = 0.1
TRANSFER_POPULATION = 0.2
"""Share of the earlier population of the buffer."""


class AdaptationHyperparameters(Hyperparameters):
    """Those of an agent that learns at work, and of the detector that tells it when."""

    drift_block: Positive = 20
    """Decisions over which the detector averages its signal: neighbours are much alike."""
    drift_reference: Annotated[int, Field(ge=2)] = 20
    """Blocks in which the detector learns how its signal is distributed; it is silent meanwhile."""
    drift_tolerance: Annotated[float, Field(ge=0)] = 0.5
    """Page-Hinkley's delta: standard deviations of a block that are no drift yet."""
    drift_threshold: Annotated[float, Field(gt=0)] = 20.0
    """Page-Hinkley's threshold, in standard deviations of a block."""


ADAPTATION: dict[str, Any] = {
    "buffer_capacity": 20_000,
    "buffer_population": 0.03,
    "population_epsilon": 0.02,
    "epsilon_first": 0.05,
    "epsilon_last": 0.01,
    "training_steps": 1_000,
    "target_update_period": 200,
    "learning_rate": 1e-4,
}
"""What an agent at work does otherwise than in the training that it comes from."""


def adaptation_hyperparameters(trained_with: Hyperparameters) -> AdaptationHyperparameters:
    """Return the defaults of an agent that goes on learning at work."""
    return AdaptationHyperparameters(**{**trained_with.model_dump(), **ADAPTATION})


def transfer_hyperparameters(trained_with: Hyperparameters, *, replay: bool) -> Hyperparameters:
    """Return the defaults of a training that starts from the weights of an earlier one.

    With the earlier one's buffer there is nothing to fill.

    >>> short = transfer_hyperparameters(Hyperparameters(), replay=False)
    >>> short.training_steps, short.population_decisions, short.epsilon_first
    (30000, 20000, 0.1)
    """
    population = 0.0 if replay else trained_with.buffer_population * TRANSFER_POPULATION
    population = round(population, 9)  # as a person would write it
    return trained_with.model_copy(
        update={
            "training_steps": max(1, round(trained_with.training_steps * TRANSFER_SHARE)),
            "buffer_population": population,
            "population_epsilon": min(TRANSFER_EPSILON, trained_with.population_epsilon),
            "epsilon_first": min(TRANSFER_EPSILON, trained_with.epsilon_first),
        }
    )
