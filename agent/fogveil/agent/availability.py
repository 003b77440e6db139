"""Choosing among the nodes that take jobs: `Observation.available`, None where all of them do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

Available = tuple[int, ...] | None


def least(costs: Sequence[float], available: Available) -> int:
    """Return the node of the least cost, the first of equal ones.

    >>> least([3.0, 1.0, 2.0], None), least([3.0, 1.0, 2.0], (0, 2))
    (1, 2)
    """
    if available is None:
        return costs.index(min(costs))
    return min(available, key=costs.__getitem__)


def greatest(values: npt.NDArray[Any], available: Available) -> int:
    """Return the node of the greatest value, the first of equal ones.

    >>> import numpy as np
    >>> greatest(np.array([1.0, 9.0, 2.0]), (0, 2))
    2
    """
    if available is None:
        return int(values.argmax())
    return available[int(values[list(available)].argmax())]


def drawn_from(uniform: float, nodes: int, available: Available) -> int:
    """Return the node that a number drawn from [0, 1) stands for.

    >>> drawn_from(0.5, 4, None), drawn_from(0.5, 4, (0, 3))
    (2, 3)
    """
    if available is None:
        return int(uniform * nodes)
    return available[int(uniform * len(available))]
