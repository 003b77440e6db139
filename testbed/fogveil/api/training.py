"""Training of the agents that ship with fogveil."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from fogveil.agent.learning.hyperparameters import change_hyperparameters
from fogveil.agent.learning.registry import find_agent
from fogveil.agent.learning.transfer import Transfer
from fogveil.api.comparing import compare
from fogveil.api.running import AnyScenario, as_scenario
from fogveil.testbed.experiments.embedded_training import train as train_embedded


def train(
    scenario: AnyScenario,
    agent: str,
    out: str | Path,
    *,
    seed: int | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    start: str | Path | None = None,
    replay: bool = False,
) -> Path:
    """Train an agent (`parl`, `plrl-edql`, `veil`, …) and return its file, a policy like any other.

    A training that was stopped continues when it is called again with the same arguments.
    `hyperparameters` changes values of the paper's table, such as `training_steps`. `start` is the
    file of a trained agent to start from, with `replay` from its buffer, too.
    """
    kind = find_agent(agent)
    transfer = Transfer(Path(start), replay=replay) if start else None
    defaults = transfer.check(agent) if transfer else kind.defaults
    chosen = as_scenario(scenario, seed)
    if chosen.disclosure != kind.needs.word:
        chosen = chosen.replace(disclosure=kind.needs.word)
    values = change_hyperparameters(defaults, hyperparameters or {}, "hyperparameters")
    return train_embedded(chosen, agent, Path(out), values, transfer=transfer)


def evaluate(
    agent: str | Path,
    scenario: AnyScenario,
    *,
    against: str | tuple[str, ...] = ("random", "jsq", "setr"),
    **options: Any,
) -> pa.Table:
    """Compare a trained agent with other policies; `options` are those of `compare`."""
    rivals = [against] if isinstance(against, str) else against
    return compare(scenario, [agent, *rivals], **options)
