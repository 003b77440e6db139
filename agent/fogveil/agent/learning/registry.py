"""The learning agents by name, and trained agents from their files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from fogveil.agent.learning.actor import Actor
from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.checkpoint import (
    differences,
    layers_of,
    read_checkpoint,
    read_header,
)
from fogveil.agent.learning.hyperparameters import Hyperparameters, change_hyperparameters
from fogveil.agent.learning.network_policy import AGENT as NETWORK
from fogveil.agent.learning.network_policy import kind_of, load_network
from fogveil.agent.policy import AgentView, Policy
from fogveil.core.errors import InputError


class Entry(NamedTuple):
    """Where an agent's or a policy's class is, and a summary in a few words."""

    module: str
    class_name: str
    summary: str

    def load(self) -> Any:
        """Import the class."""
        return getattr(importlib.import_module(self.module), self.class_name)


AGENTS = {
    "parl": Entry(
        "fogveil.agent.learning.parl",
        "Parl",
        "the paper's agent: placements only, reward from the total",
    ),
    "veil": Entry(
        "fogveil.agent.learning.veil",
        "Veil",
        "observes counts, infers the rest, learns the inference's error",
    ),
    "veil-total": Entry(
        "fogveil.agent.learning.veil_total",
        "VeilTotal",
        "the same at the paper's level of privacy: observes the total",
    ),
    "plrl-ed": Entry(
        "fogveil.agent.learning.plrl", "PlrlDelay", "literature: penalised by execution delay"
    ),
    "plrl-ql": Entry(
        "fogveil.agent.learning.plrl", "PlrlQueueLength", "literature: penalised by queue length"
    ),
    "plrl-edql": Entry(
        "fogveil.agent.learning.plrl", "PlrlDelayAndQueueLength", "literature: penalised by both"
    ),
}


def find_agent(name: str) -> type[LearningAgent]:
    """Return the class of a learning agent."""
    if name not in AGENTS:
        raise InputError(f"no agent is called {name!r}: expected one of {', '.join(AGENTS)}")
    kind: type[LearningAgent] = AGENTS[name].load()
    return kind


def public_facts(view: AgentView) -> dict[str, Any]:
    """Return the view as a checkpoint's header holds it, without seed and settings."""
    facts = asdict(view)
    del facts["seed"], facts["settings"]
    return {**facts, "disclosed": view.disclosed.word}


def trained_class(path: Path) -> type[Policy]:
    """Return the class that acts by the file of a trained agent or of another library's network."""
    header = read_header(path)
    return kind_of(path, header) if header["agent"] == NETWORK else _actor_kind(header)


def _actor_kind(header: Mapping[str, Any]) -> type[Actor]:
    return find_agent(header["agent"]).actor_kind


def load_trained(path: Path, view: AgentView) -> Policy:
    """Return a trained agent that acts on a scenario of the shape it was trained on."""
    checkpoint = read_checkpoint(path)
    if checkpoint.header["agent"] == NETWORK:
        check_shape(path, checkpoint.header["public"], view)
        return load_network(path, checkpoint, view)
    kind = _actor_kind(checkpoint.header)
    if not kind.any_shape:
        check_shape(path, checkpoint.header["public"], view)
    kept = checkpoint.header.get("hyperparameters", {})
    hyperparameters = change_hyperparameters(Hyperparameters(), kept, str(path))
    actor = kind(view, layers_of(path, checkpoint), hyperparameters)
    inputs, expected = actor.layers[0][0].shape[0], kind.input_size(view)
    if inputs != expected:
        raise InputError(f"{path}: has {inputs} inputs, expected {expected}")
    return actor


def check_shape(path: Path, trained_on: Mapping[str, Any], view: AgentView) -> None:
    """Refuse a scenario of another shape than the agent was trained on; name the differences."""
    different = differences(trained_on, asdict(view))
    if different:
        raise InputError(f"{path}: was trained on another shape of scenario: {different}")
