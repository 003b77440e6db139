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
        self._first = 0
        """The first decision that may still be sampled."""
        self._next_age = 0

    def __len__(self) -> int:
        return min(self.added, self._capacity)

    @property
    def held(self) -> int:
        """The decisions that may be sampled, as far as their rewards are known."""
        return min(len(self), self.added - self._first)

    def forget(self, kept: int) -> None:
        """Never sample decisions again that are older than the last `kept`."""
        self._first = max(self._first, self.added - kept)

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
        oldest = max(oldest, self._first)
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
        forgotten = {"first": np.int64(self._first)} if self._first else {}
        return {
            **columns,
            **forgotten,
            "age": self.age[: len(self)],
            "usable": self.usable[: len(self)],
            "added": np.int64(self.added),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.added = int(state["added"])
        self._first = int(state.get("first", 0))
        self.age[: len(self)] = state["age"]
        self.usable[: len(self)] = state["usable"]
        for name, column in self.columns.items():
            column[: len(self)] = state[f"column_{name}"]

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Return whether another buffer's `state` has decisions of this shape."""
        return {f"column_{name}" for name in self.columns} == {
            name for name in state if name.startswith("column_")
        } and all(
            state[f"column_{name}"].shape[1:] == column.shape[1:]
            for name, column in self.columns.items()
        )

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Begin with the latest decisions of another buffer's `state`, which has any capacity."""
        held, added = len(state["age"]), int(state["added"])
        numbers = np.arange(added - held, added)[-self._capacity :]
        places = numbers % max(held, 1)
        self.added = kept = len(places)
        self._first = min(self._reach, kept) if kept < added else 0  # their states are incomplete
        self.age[:kept] = state["age"][places]
        self.usable[:kept] = state["usable"][places] & (numbers >= state.get("first", 0))
        for name, column in self.columns.items():
            column[:kept] = state[f"column_{name}"][places]
