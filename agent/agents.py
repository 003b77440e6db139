"""The learning agents by name, and trained ones from their files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agent.acting import Actor, Layers
from agent.learned import LearningAgent
from agent.learning.checkpoint import Checkpoint, differences, read_checkpoint, read_header
from agent.policy import AgentView
from fogveil.errors import InputError


class Entry(NamedTuple):
    """Where an agent or a policy lives, and what it is in a few words."""

    module: str
    class_name: str
    summary: str

    def load(self) -> Any:
        """Import the class."""
        return getattr(importlib.import_module(self.module), self.class_name)


AGENTS = {
    "parl": Entry(
        "agent.parl", "Parl", "the paper's agent: placements only, reward from the total"
    ),
    "veil": Entry("agent.veil", "Veil", "sees counts, infers the rest, learns how that errs"),
    "plrl-ed": Entry("agent.plrl", "PlrlDelay", "literature: punished by execution delay"),
    "plrl-ql": Entry("agent.plrl", "PlrlQueueLength", "literature: punished by queue length"),
    "plrl-edql": Entry("agent.plrl", "PlrlDelayAndQueueLength", "literature: punished by both"),
}


def find_agent(name: str) -> type[LearningAgent]:
    """Return the class of a learning agent."""
    if name not in AGENTS:
        raise InputError(f"no agent is called {name!r}: expected one of {', '.join(AGENTS)}")
    found: type[LearningAgent] = AGENTS[name].load()
    return found


def public(view: AgentView) -> dict[str, Any]:
    """Spell the public projection for a checkpoint's header, without seed and settings."""
    facts = asdict(view)
    del facts["seed"], facts["settings"]
    return {**facts, "disclosed": view.disclosed.word}


def trained_kind(path: Path) -> type[Actor]:
    """Return the class that a trained agent's file is for."""
    return find_agent(read_header(path)["agent"]).actor_kind


def load_trained(path: Path, view: AgentView) -> Actor:
    """Make a trained agent act on a scenario of the shape it was trained on."""
    checkpoint = read_checkpoint(path)
    kind = find_agent(checkpoint.header["agent"]).actor_kind
    if not kind.any_shape:
        check_shape(path, checkpoint.header["public"], view)
    actor = kind(view, layers_of(path, checkpoint))
    found = actor.layers[0][0].shape[0]
    if found != actor.input_size():
        raise InputError(f"{path}: has {found} inputs, expected {actor.input_size()}")
    return actor


def check_shape(path: Path, trained_on: Mapping[str, Any], view: AgentView) -> None:
    """Refuse a scenario of another shape than the agent was trained on, and say what differs."""
    differs = differences(trained_on, asdict(view))
    if differs:
        raise InputError(f"{path}: was trained on another shape of scenario: {differs}")


def layers_of(path: Path, checkpoint: Checkpoint) -> Layers:
    """Return the online network of a checkpoint, or the layers of a light file."""
    flat, sizes = checkpoint.arrays.get("learner_online"), checkpoint.header["sizes"]
    wanted = sum(inputs * outputs + outputs for inputs, outputs in pairwise(sizes))
    if flat is None or flat.shape != (wanted,) or not np.isfinite(flat).all():
        raise InputError(f"{path}: expected a network of {wanted} finite parameters")
    layers, at = [], 0
    for inputs, outputs in pairwise(sizes):
        weights = flat[at : at + inputs * outputs].reshape(inputs, outputs)
        at += inputs * outputs
        layers.append((weights, flat[at : at + outputs]))
        at += outputs
    return layers
