"""Randomness keyed by (seed, purpose, job id), never drawn in sequence from a shared generator.

A job's chance events do not depend on who serves it, in which order, or which policy runs. So
policies are compared on common random numbers, and processes that share no state agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator, Philox  # now: a participant may not read NumPy's files later

BLOCK = 1024
"""Jobs whose numbers are drawn together: one generator is set up per block, not per job."""
BLOCKS_KEPT = 8
"""Blocks that one purpose holds in memory; an older one is drawn again when asked for."""


class Seeds(NamedTuple):
    """The scenario's seed, split one-way: a participant receives only the one it needs.

    One-way against guessing only where the scenario's seed is large (128 random bits): a small
    one can be found by trying all, and with it the others.
    """

    workload: int
    environment: int
    policy: int

    @classmethod
    def of(cls, seed: int) -> Seeds:
        """Derive the three seeds of a run."""
        return cls(*(_digest(f"fogveil/{plane}/{seed}") for plane in cls._fields))


def drawn(seed: int, draw: int) -> int:
    """Return a participant's seed for another draw of the same scenario; draw 0 is the first.

    Each derives it from its own seed alone, so that the episodes of a training differ without
    anybody being told the scenario's seed.
    """
    return _digest(f"{seed}/draw/{draw}") if draw else seed


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


class KeyedUniform:
    """A number in [0, 1) for every job id, the same whenever and wherever it is asked for.

    >>> chance = KeyedUniform(7, "to the cloud")
    >>> chance(3) == KeyedUniform(7, "to the cloud")(3)
    True
    """

    shape = 0
    """Erlang shape; 0 leaves the number uniform."""

    def __init__(self, seed: int, purpose: str) -> None:
        self._key = _digest(f"{seed}/{purpose}")
        self._blocks: dict[int, list[float]] = {}

    def __call__(self, job: int) -> float:
        """Return the number of this job."""
        values = self._blocks.get(job // BLOCK)
        if values is None:
            if len(self._blocks) >= BLOCKS_KEPT:
                del self._blocks[next(iter(self._blocks))]
            values = self._blocks[job // BLOCK] = _draw(self._key, self.shape, job // BLOCK)
        return values[job % BLOCK]


class KeyedErlang(KeyedUniform):
    """A number of mean 1 for every job id, Erlang of the given shape (1 is exponential)."""

    def __init__(self, seed: int, purpose: str, shape: int = 1) -> None:
        super().__init__(seed, purpose)
        self.shape = shape


class KeyedPareto(KeyedUniform):
    """A number of mean 1 for every job id, Pareto of the given shape, which is above 1.

    Up to a shape of 2 the variance is infinite: a few large jobs bring much of the work.
    """

    def __init__(self, seed: int, purpose: str, shape: float) -> None:
        super().__init__(seed, purpose)
        self._least, self._power = 1 - 1 / shape, -1 / shape

    def __call__(self, job: int) -> float:
        """Return the number of this job."""
        factor: float = self._least * (1 - super().__call__(job)) ** self._power
        return factor


@lru_cache(maxsize=64)  # cores that share a process and a purpose share the work
def _draw(key: int, shape: int, block: int) -> list[float]:
    size = BLOCK * max(shape, 1)
    # One step of Philox's counter yields four numbers, so blocks never overlap.
    bits = Philox(key=key, counter=block * (size // 4))
    uniform = Generator(bits).random(size)
    if shape:
        uniform = -np.log1p(-uniform).reshape(BLOCK, shape).sum(axis=1) / shape
    values: list[float] = uniform.tolist()
    return values


def always_one(_job: int) -> float:
    """Return the service factor of a deterministic environment."""
    return 1.0


JobFactor = Callable[[int], float]
