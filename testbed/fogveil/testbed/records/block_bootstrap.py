"""Intervals of one recorded trace: a moving-block bootstrap over its time.

A trace that is replayed with other seeds brings the same workloads, so seeds show nothing of how
much a measure would differ on another stretch of the same traffic. Blocks of consecutive time do,
as long as they last longer than one delay influences the next: then they are nearly independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from fogveil.testbed.records.join import Floats

Cells = npt.NDArray[np.intp]

CELLS = 200
"""Equal parts of the time from the first workload to the last; a block begins at any of them."""
BLOCK_CELLS = 10
BLOCKS = CELLS // BLOCK_CELLS
"""Blocks that make up one replicate, as long as the trace."""
REPLICATES = 1000
LEAST_JOBS = 10 * BLOCKS
"""A trace of fewer workloads is too short for blocks."""
RANKS = 1000
"""Groups of neighbouring ranks in which percentiles of replicates are found, at most."""


def cells_of(emitted: Floats) -> Cells:
    """Return the cell of each workload by the time of its emission."""
    first, last = emitted.min(), emitted.max()
    share = (emitted - first) / (last - first or 1.0)
    cells: Cells = np.minimum((share * CELLS).astype(np.intp), CELLS - 1)
    return cells


@cache
def _weights() -> Floats:
    """Return how often each replicate contains each cell; the same blocks for every policy."""
    random = np.random.Generator(np.random.Philox(1))
    starts = random.integers(0, CELLS - BLOCK_CELLS + 1, (REPLICATES, BLOCKS))
    changes = np.zeros((REPLICATES, CELLS + 1))
    rows = np.arange(REPLICATES)[:, None]
    np.add.at(changes, (rows, starts), 1)
    np.add.at(changes, (rows, starts + BLOCK_CELLS), -1)
    weights: Floats = changes.cumsum(axis=1)[:, :CELLS]
    return weights


def ratio_half_width(sums: npt.ArrayLike, others: npt.ArrayLike) -> float:
    """Return the half-width of the 95 % interval of one sum over another, both given by cell."""
    above, below = _weights() @ np.asarray(sums), _weights() @ np.asarray(others)
    return _half_width(above[below > 0] / below[below > 0])


def mean_half_width(values: Floats, cells: Cells) -> float:
    """Return the half-width of the 95 % interval of a mean over workloads."""
    return ratio_half_width(np.bincount(cells, values, CELLS), np.bincount(cells, minlength=CELLS))


def percentile_half_widths(
    values: Floats, cells: Cells, percentiles: Sequence[float]
) -> list[float]:
    """Return the half-widths of the 95 % intervals of some percentiles over workloads."""
    order = np.argsort(values, kind="stable")
    groups = min(len(values), RANKS)
    group = np.arange(len(values)) * groups // len(values)
    sizes = np.zeros((CELLS, groups))
    np.add.at(sizes, (cells[order], group), 1)
    below = (_weights() @ sizes).cumsum(axis=1)
    # A replicate's percentile is in the group that its share of workloads reaches.
    highest = values[order][np.searchsorted(group, np.arange(groups), side="right") - 1]
    widths = []
    for percentile in percentiles:
        wanted = below[:, -1:] * (percentile / 100)
        widths.append(_half_width(highest[(below < wanted).sum(axis=1)]))
    return widths


def _half_width(replicates: Floats) -> float:
    """By Student's t: a trace is no more than so many independent blocks."""
    from scipy.special import stdtrit  # takes 0.2 s to load

    error = replicates.std() * sqrt(BLOCKS / (BLOCKS - 1))
    return float(stdtrit(BLOCKS - 1, 0.975) * error)
