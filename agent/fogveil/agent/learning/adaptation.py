"""`--adapt`: a trained agent that learns at work, found by its policy's name or file, and kept."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import fogveil.agent.policies as policies
from fogveil.agent.learning.adapting import Adapt, AdaptingAgent, adapting_kind
from fogveil.agent.learning.checkpoint import (
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from fogveil.agent.learning.hyperparameters import change_hyperparameters
from fogveil.agent.learning.registry import AGENTS, find_agent, public_facts
from fogveil.agent.learning.relearning import (
    AdaptationHyperparameters,
    adaptation_hyperparameters,
)
from fogveil.agent.learning.training_state import library_versions
from fogveil.agent.learning.transfer import (
    Transfer,
    adopt_weights,
    check_learns,
    trained_with,
)
from fogveil.agent.policy import AgentView
from fogveil.core.disclosure import CountKind
from fogveil.core.errors import InputError
from fogveil.core.version import source_commit

TRAINED = Path(__file__).parent.parent / "trained"
"""Where the shipped agents are."""
SAVE_PERIOD = 60.0
"""Seconds between two copies of the weights while a run goes on."""
KEPT = ("agent", "sizes", "hyperparameters", "episodes", "started_from")
"""What a file of an adapted agent repeats of the training that it comes from."""


@dataclass(frozen=True)
class AdaptationRequest:
    """When the agent of a run learns, and how it differs from the defaults."""

    adapt: Adapt
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters by their names."""


def parse_adapt(word: str) -> Adapt:
    """Return what `--adapt=WORD` asks for."""
    try:
        return Adapt(word)
    except ValueError as error:
        raise InputError(
            f"--adapt={word}: expected on (learn all the time) or auto (learn from a drift on)"
        ) from error


class Adaptation:
    """The adapting agent of one run."""

    def __init__(self, spec: object, view: AgentView, request: AdaptationRequest) -> None:
        """Load a policy's agent with the weights it was trained to; refuse one that cannot learn.

        What the policy cannot run on without `--adapt` is refused with the same words.
        """
        if find_spec("torch") is None:
            raise InputError(
                "--adapt needs torch, with which agents learn: pip install --constraint "
                "constraints.txt '.[train]' installs it"
            )
        kind = adapting_class(spec, view, request.adapt)
        assert isinstance(spec, str)
        policies.check_level(spec, kind, view.disclosed)
        policies.load(spec, view)
        path, checkpoint, self._digest = _origin(spec, view.count)
        self._request = request
        self._header = checkpoint.header
        self.agent = kind(view, _hyperparameters(path, self._header, request))
        adopt_weights(self.agent, path, checkpoint)
        self._saved = time.monotonic()

    def describe(self) -> dict[str, Any]:
        """Return what run.json says of it."""
        return describe(self.agent.hyperparameters, self._request.adapt, self.agent.firings)

    def save(self, light: Path, complete: Path) -> None:
        """Write the network alone, a policy like any other, and the complete state."""
        state = self.agent.state()
        self._write(light, {"learner_online": state["learner_online"]})
        self._write(complete, state)

    def save_weights_now_and_then(self, light: Path) -> None:
        """Write the network alone if it has been long: a run that is stopped leaves it behind."""
        now = time.monotonic()
        if now - self._saved >= SAVE_PERIOD:
            self._saved = now
            self._write(light, {"learner_online": self.agent.learner.state()["online"]})

    def _write(self, path: Path, arrays: Mapping[str, Any]) -> None:
        agent = self.agent
        header = {
            **{key: self._header[key] for key in KEPT if key in self._header},
            "seed": agent.view.seed,
            "public": public_facts(agent.view),
            "versions": library_versions(),
            "commit": source_commit(),
            "adapted": {
                "sha256": self._digest,
                "adapt": self._request.adapt.value,
                "hyperparameters": agent.hyperparameters.model_dump(mode="json"),
                "decisions": agent.decisions,
                "training_steps": agent.training_steps,
            },
        }
        write_checkpoint(path, header, arrays)


def describe(
    hyperparameters: AdaptationHyperparameters, adapt: Adapt, firings: list[Any]
) -> dict[str, Any]:
    """Return what run.json says of an adapting agent: how it learned, and each drift it noticed."""
    return {
        "adapt": {"when": adapt.value, "hyperparameters": hyperparameters.model_dump(mode="json")},
        "adaptation": [firing._asdict() for firing in firings],
    }


def adapting_class(spec: object, view: AgentView, adapt: Adapt) -> type[AdaptingAgent]:
    """Return the class of a policy's adapting agent; refuse a policy that cannot learn."""
    if isinstance(spec, str) and (spec in AGENTS or spec.endswith(".npz")):
        path, checkpoint, _ = _origin(spec, view.count)
        check_learns(path, checkpoint.header)
        return adapting_kind(find_agent(checkpoint.header["agent"]), adapt)
    name = spec if isinstance(spec, str) else getattr(spec, "__name__", type(spec).__name__)
    raise InputError(
        f"policy {name} cannot learn at work: --adapt is for parl, veil, veil-total, and the file "
        "of an agent that fogveil train has trained"
    )


def adaptation_values(
    spec: str, view: AgentView, request: AdaptationRequest
) -> AdaptationHyperparameters:
    """Return the hyper-parameters that a policy's agent adapts with."""
    path, checkpoint, _ = _origin(spec, view.count)
    return _hyperparameters(path, checkpoint.header, request)


def _hyperparameters(
    path: Path, header: Mapping[str, Any], request: AdaptationRequest
) -> AdaptationHyperparameters:
    defaults = adaptation_hyperparameters(trained_with(path, header))
    return change_hyperparameters(defaults, request.changes, "--hyperparameters")


class _Origin(NamedTuple):
    """The training that an adapting agent comes from."""

    path: Path
    checkpoint: Checkpoint
    digest: str


def _origin(spec: str, count: CountKind) -> _Origin:
    shipped = {"parl": "parl", "veil": f"veil-{count}", "veil-total": "veil-total-waiting"}
    return _shipped(shipped[spec]) if spec in shipped else _read(Path(spec))


@lru_cache  # read once, while the agent's process may still read the package's files
def _shipped(name: str) -> _Origin:
    return _read(TRAINED / f"{name}.npz")


def _read(path: Path) -> _Origin:
    checkpoint = read_checkpoint(path)
    return _Origin(path, checkpoint, Transfer(path).digest)
