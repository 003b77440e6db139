"""Randomness keyed by (seed, purpose, job id), never drawn in sequence from a shared generator.

A job's chance events do not depend on who serves it, in which order, or which policy runs. So
policies are compared on common random numbers, and processes that share no state agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BLOCK = 1024
"""Jobs whose numbers are drawn together: one generator is set up per block, not per job."""
BLOCKS_KEPT = 256
"""Blocks held in memory; an older one is drawn again when asked for."""


class Seeds(NamedTuple):
    """The scenario's seed, split one-way: a participant receives only the one it needs."""

    workload: int
    environment: int
    policy: int

    @classmethod
    def of(cls, seed: int) -> Seeds:
        """Derive the three seeds of a run."""
        return cls(*(_digest(f"fogveil/{plane}/{seed}") for plane in cls._fields))


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


class KeyedUniform:
    """A number in [0, 1) for every job id, the same whenever and wherever it is asked for.

    >>> chance = KeyedUniform(7, "to the cloud")
    >>> chance(3) == KeyedUniform(7, "to the cloud")(3)
    True
    """

    def __init__(self, seed: int, purpose: str, per_job: int = 1) -> None:
        self._key = _digest(f"{seed}/{purpose}")
        self._per_job = per_job
        self._blocks: dict[int, list[float]] = {}

    def __call__(self, job: int) -> float:
        """Return the number of this job."""
        values = self._blocks.get(job // BLOCK)
        if values is None:
            values = self._draw(job // BLOCK)
        return values[job % BLOCK]

    def _draw(self, block: int) -> list[float]:
        size = BLOCK * self._per_job
        # One step of Philox's counter yields four numbers, so blocks never overlap.
        bits = np.random.Philox(key=self._key, counter=block * (size // 4))
        uniform = np.random.Generator(bits).random(size)
        values = self._shape(uniform.reshape(BLOCK, self._per_job)).tolist()
        if len(self._blocks) >= BLOCKS_KEPT:
            del self._blocks[next(iter(self._blocks))]
        self._blocks[block] = values
        return values

    def _shape(self, uniform: Floats) -> Floats:
        return uniform[:, 0]


class KeyedErlang(KeyedUniform):
    """A number of mean 1 for every job id, Erlang of the given shape (1 is exponential)."""

    def __init__(self, seed: int, purpose: str, shape: int = 1) -> None:
        super().__init__(seed, purpose, per_job=shape)

    def _shape(self, uniform: Floats) -> Floats:
        mean: Floats = -np.log1p(-uniform).sum(axis=1) / self._per_job
        return mean


def always_one(_job: int) -> float:
    """Return the service factor of a deterministic environment."""
    return 1.0


JobFactor = Callable[[int], float]
