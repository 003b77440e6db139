"""The learning agents by name, and trained ones from their files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from agent.acting import Actor, Layers
from agent.learned import LearningAgent
from agent.learning.checkpoint import Checkpoint, differences, read_checkpoint
from agent.policy import AgentView
from fogveil.errors import InputError


class Entry(NamedTuple):
    """Where an agent lives, and what it is in a few words."""

    module: str
    class_name: str
    summary: str


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
    entry = AGENTS[name]
    found: type[LearningAgent] = getattr(importlib.import_module(entry.module), entry.class_name)
    return found


def public(view: AgentView) -> dict[str, Any]:
    """Spell the public projection for a checkpoint's header, without seed and settings."""
    facts = asdict(view)
    del facts["seed"], facts["settings"]
    return {**facts, "disclosed": view.disclosed.word}


def trained_kind(path: Path) -> type[Actor]:
    """Return the class that a trained agent's file is for."""
    return find_agent(read_checkpoint(path).header["agent"]).actor_kind


def load_trained(path: Path, view: AgentView) -> Actor:
    """Make a trained agent act on a scenario of the shape it was trained on."""
    checkpoint = read_checkpoint(path)
    kind = find_agent(checkpoint.header["agent"]).actor_kind
    if not kind.any_shape:
        check_shape(path, checkpoint.header["public"], view)
    return kind(view, layers_of(checkpoint))


def check_shape(path: Path, trained_on: Mapping[str, Any], view: AgentView) -> None:
    """Refuse a scenario of another shape than the agent was trained on, and say what differs."""
    differs = differences(trained_on, asdict(view))
    if differs:
        raise InputError(f"{path}: was trained on another shape of scenario: {differs}")


def layers_of(checkpoint: Checkpoint) -> Layers:
    """Return the online network of a checkpoint, or the layers of a light file."""
    flat = checkpoint.arrays["learner_online"]
    sizes = checkpoint.header["sizes"]
    layers, at = [], 0
    for inputs, outputs in pairwise(sizes):
        weights = flat[at : at + inputs * outputs].reshape(inputs, outputs)
        at += inputs * outputs
        layers.append((weights, flat[at : at + outputs]))
        at += outputs
    return layers
