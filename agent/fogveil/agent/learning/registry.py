"""The learning agents by name, and trained agents from their files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fogveil.agent.learning.actor import Actor, Layers
from fogveil.agent.learning.agent_base import LearningAgent
from fogveil.agent.learning.checkpoint import Checkpoint, differences, read_checkpoint, read_header
from fogveil.agent.learning.hyperparameters import Hyperparameters, change_hyperparameters
from fogveil.agent.policy import AgentView
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


def trained_class(path: Path) -> type[Actor]:
    """Return the class that acts by a trained agent's file."""
    return find_agent(read_header(path)["agent"]).actor_kind


def load_trained(path: Path, view: AgentView) -> Actor:
    """Return a trained agent that acts on a scenario of the shape it was trained on."""
    checkpoint = read_checkpoint(path)
    kind = find_agent(checkpoint.header["agent"]).actor_kind
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


def layers_of(path: Path, checkpoint: Checkpoint) -> Layers:
    """Return the layers of a checkpoint's online network."""
    flat, sizes = checkpoint.arrays.get("learner_online"), checkpoint.header["sizes"]
    size = sum(inputs * outputs + outputs for inputs, outputs in pairwise(sizes))
    if flat is None or flat.shape != (size,) or not np.isfinite(flat).all():
        raise InputError(f"{path}: expected a network of {size} finite parameters")
    layers, at = [], 0
    for inputs, outputs in pairwise(sizes):
        weights = flat[at : at + inputs * outputs].reshape(inputs, outputs)
        at += inputs * outputs
        layers.append((weights, flat[at : at + outputs]))
        at += outputs
    return layers
