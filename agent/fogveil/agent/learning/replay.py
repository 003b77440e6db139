"""The replay buffer: decisions in the order in which they were taken, a few bytes each.

A transition is two consecutive decisions of one episode, so each decision is stored once. The last
decision of an episode has no successor: it is never sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

TRIES = 100
"""Draws before a batch is given up, when hardly any decision may be sampled."""

Column = npt.NDArray[Any]
Places = npt.NDArray[np.int64]


class Replay:
    """A ring buffer of decisions in named columns, with uniform sampling of transitions."""

    def __init__(self, capacity: int, columns: Mapping[str, npt.DTypeLike], reach: int = 0) -> None:
        self._capacity = capacity
        self._reach = reach
        """How many earlier decisions a state depends on."""
        self.columns: dict[str, Column] = {
            name: np.zeros(capacity, dtype) for name, dtype in columns.items()
        }
        self.age = np.zeros(capacity, np.int32)
        """Decisions before this one in its episode."""
        self.usable = np.ones(capacity, bool)
        """Whether a decision may be sampled: not before its reward is known."""
        self.added = 0
        self._next_age = 0

    def __len__(self) -> int:
        return min(self.added, self._capacity)

    def begin_episode(self) -> None:
        """Start an episode with the next decision."""
        self._next_age = 0

    def add(self, **values: Any) -> int:
        """Append a decision and return its place in the ring."""
        place = self.added % self._capacity
        for name, value in values.items():
            self.columns[name][place] = value
        self.age[place] = self._next_age
        self._next_age += 1
        self.added += 1
        return place

    def sample(self, size: int, random: np.random.Generator) -> tuple[Places, Places]:
        """Return the places of `size` transitions: of their decisions, and of the next ones.

        Returns none where too few may be sampled.
        """
        oldest = self.added - len(self)
        if oldest:
            oldest += self._reach  # what a state depends on must not be overwritten
        batch = np.empty(0, np.int64)
        for _ in range(TRIES):
            if len(batch) >= size or self.added < oldest + 2:
                break
            drawn = random.integers(oldest, self.added - 1, size)
            after = (drawn + 1) % self._capacity
            valid = (self.age[after] > 0) & self.usable[drawn % self._capacity]
            batch = np.concatenate((batch, drawn[valid]))
        places = (batch[:size] if len(batch) >= size else batch[:0]) % self._capacity
        return places, (places + 1) % self._capacity

    def before(self, places: Places, steps: Places) -> Places:
        """Return the places of the decisions `steps` before, as [place, step]."""
        return (places[:, None] - steps[None, :]) % self._capacity

    def state(self) -> dict[str, Any]:
        """Return the complete state for a checkpoint."""
        columns = {f"column_{name}": column[: len(self)] for name, column in self.columns.items()}
        return {
            **columns,
            "age": self.age[: len(self)],
            "usable": self.usable[: len(self)],
            "added": np.int64(self.added),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.added = int(state["added"])
        self.age[: len(self)] = state["age"]
        self.usable[: len(self)] = state["usable"]
        for name, column in self.columns.items():
            column[: len(self)] = state[f"column_{name}"]
