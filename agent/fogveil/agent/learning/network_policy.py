"""A network that another library trained, as a policy: layers over the observation's vector.

Its file is a checkpoint of the light form. It acts greedily, without the library and without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fogveil.agent.learning.actor import Floats, Layers, rectify, run_layers
from fogveil.agent.learning.checkpoint import Checkpoint, layers_of, write_checkpoint
from fogveil.agent.observation_vector import Mask, Vector, VectorPolicy
from fogveil.agent.policy import AgentView, Level
from fogveil.core.errors import InputError

AGENT = "network"
"""What the header of such a file names as its agent."""
ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {"relu": rectify, "tanh": np.tanh}


class Normalisation(NamedTuple):
    """How observations are scaled before the first layer: (vector - mean) / deviation, clipped."""

    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    clip: float

    def of(self, vector: Vector) -> Vector:
        """Return the scaled vector."""
        scaled = (vector - self.mean) / self.deviation
        clipped: Vector = np.clip(scaled, -self.clip, self.clip).astype(np.float32)
        return clipped


class NetworkPolicy(VectorPolicy):
    """Chooses the node of the highest output."""

    def __init__(
        self,
        view: AgentView,
        layers: Layers,
        activation: str,
        normalisation: Normalisation | None = None,
    ) -> None:
        self.layers = layers
        self._activation = ACTIVATIONS[activation]
        self._normalisation = normalisation
        super().__init__(view)

    def act(self, vector: Vector, mask: Mask) -> int:
        """Return the node of the highest output among those that the mask permits."""
        inputs = self._normalisation.of(vector) if self._normalisation else vector
        outputs = run_layers(self.layers, inputs, self._activation)
        return int(np.where(mask, outputs, -np.inf).argmax())


class NetworkAtNone(NetworkPolicy):
    """A network that observes nothing disclosed."""

    needs = Level.NONE


class NetworkAtTotal(NetworkPolicy):
    """A network that observes the total."""

    needs = Level.TOTAL


class NetworkAtCount(NetworkPolicy):
    """A network that observes each node's count."""

    needs = Level.COUNT


class NetworkAtFull(NetworkPolicy):
    """A network that observes everything."""

    needs = Level.FULL


KINDS: dict[str, type[NetworkPolicy]] = {
    kind.needs.word: kind for kind in (NetworkAtNone, NetworkAtTotal, NetworkAtCount, NetworkAtFull)
}


def write_network(
    path: Path,
    header: Mapping[str, Any],
    layers: Layers,
    activation: str,
    normalisation: Normalisation | None,
) -> None:
    """Write a network as a policy; the header holds `level`, `public`, and what else is known."""
    sizes = [layers[0][0].shape[0], *(bias.size for _, bias in layers)]
    flat = [part.ravel() for layer in layers for part in layer]
    arrays: dict[str, npt.NDArray[Any]] = {
        "learner_online": np.concatenate(flat).astype(np.float32)
    }
    if normalisation:
        arrays |= {"mean": normalisation.mean, "deviation": normalisation.deviation}
        header = {**header, "clip": normalisation.clip}
    write_checkpoint(
        path, {**header, "agent": AGENT, "sizes": sizes, "activation": activation}, arrays
    )


def kind_of(path: Path, header: Mapping[str, Any]) -> type[NetworkPolicy]:
    """Return the class that acts by a network's file."""
    if header.get("level") not in KINDS or header.get("activation") not in ACTIVATIONS:
        raise InputError(f"{path}: is not a network of fogveil: level or activation is unknown")
    return KINDS[header["level"]]


def load_network(path: Path, checkpoint: Checkpoint, view: AgentView) -> NetworkPolicy:
    """Return the policy of a network's file; the scenario's shape has been checked."""
    header, kind = checkpoint.header, kind_of(path, checkpoint.header)
    layers = layers_of(path, checkpoint)
    policy = kind(view, layers, header["activation"], _normalisation(path, checkpoint))
    shape = layers[0][0].shape[0], layers[-1][1].size
    if shape != (policy.vectors.size, len(view.nodes)):
        raise InputError(
            f"{path}: has {shape[0]} inputs and {shape[1]} outputs, "
            f"expected {policy.vectors.size} and {len(view.nodes)}"
        )
    return policy


def _normalisation(path: Path, checkpoint: Checkpoint) -> Normalisation | None:
    arrays, size = checkpoint.arrays, checkpoint.header["sizes"][0]
    clip: Any = checkpoint.header.get("clip")
    if "mean" not in arrays and "deviation" not in arrays:
        return None
    mean, deviation = (arrays.get(name, np.zeros(0)) for name in ("mean", "deviation"))
    whole = mean.shape == deviation.shape == (size,) and isinstance(clip, float)
    if not whole or not (np.isfinite(mean) & (deviation > 0)).all():
        raise InputError(f"{path}: expected means and deviations of {size} inputs, and a clip")
    return Normalisation(mean, deviation, clip)
