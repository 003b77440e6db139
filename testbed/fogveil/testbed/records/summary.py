"""The summary of a run: delays and loops with percentiles, deadlines, unserved, utilisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fogveil.testbed.records.block_bootstrap import (
    CELLS,
    LEAST_JOBS,
    cells_of,
    mean_half_width,
    percentile_half_widths,
)
from fogveil.testbed.records.join import COLUMNS, Decisions, Floats
from fogveil.testbed.scenario.world import World

_AT = {name: number for number, name in enumerate(COLUMNS)}

DELAYS = {
    "latency": ("emitted", "arrived"),
    "waiting": ("arrived", "started"),
    "service": ("started", "finished"),
    "response": ("arrived", "finished"),
    "total_response": ("emitted", "finished"),
}
"""The paper's five delays of a workload, each from one instant to another."""
LOOPS = {"fog_loop": ("emitted", "returned"), "cloud_loop": ("emitted", "cloud_returned")}
"""Fog loop: IoT → Fog → IoT, every workload. Cloud loop: IoT → Fog → Cloud → IoT, if fed back."""
PERCENTILES = (50, 90, 95, 99)
TAILS = {
    f"{name}_p{percentile}": (name, percentile)
    for name in (*DELAYS, *LOOPS)
    for percentile in PERCENTILES
}
"""The percentiles of every delay and loop, as in `fog_loop_p95`."""
_INSTANTS = COLUMNS[_AT["emitted"] : _AT["returned"] + 1]


class Summary:
    """Adds up joined rows; all measures cover all jobs, also those served after the horizon.

    Exact percentiles need every delay: 32 bytes are kept of a job.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._sums = dict.fromkeys([*DELAYS, *LOOPS], 0.0)
        self._sizes = dict.fromkeys([*DELAYS, *LOOPS], 0)
        self._workloads = 0
        self._unserved = 0
        fogs, clusters, kinds = len(world.nodes), len(world.clusters), len(world.categories)
        self._busy = np.zeros(fogs + 1)
        self._placed = np.zeros((clusters, kinds, fogs), dtype=np.int64)
        self._cluster_sums = np.zeros(clusters)
        deadlines = [application.deadline for application in world.scenario.applications]
        self._deadlines = np.array([np.nan if each is None else each for each in deadlines])
        self._met = np.zeros(kinds, dtype=np.int64)
        self._gaps: list[Floats] = []
        """Between one instant of a job and the next, from its emission to its return."""
        self._cloud_loops: list[Floats] = []
        self._emitted: list[Floats] | None = None
        self._fed_back: list[npt.NDArray[np.bool_]] = []
        self._judged: list[Floats] = []
        """Of a trace: when each job was emitted, whether it was fed back, and met its deadline."""
        if world.scenario.sources.kind == "trace":
            self._emitted = []

    def take(self, rows: Floats, decisions: Decisions) -> None:  # noqa: ARG002 (a sink's)
        """Add a block of rows."""
        horizon = self._world.scenario.horizon
        self._workloads += len(rows)
        self._unserved += int((rows[:, _AT["finished"]] > horizon).sum())
        for name, (begin, end) in (DELAYS | LOOPS).items():
            delay = rows[:, _AT[end]] - rows[:, _AT[begin]]
            known = delay[~np.isnan(delay)]
            self._sums[name] += float(known.sum())
            self._sizes[name] += known.size
        cloud_loop = rows[:, _AT["cloud_returned"]] - rows[:, _AT["emitted"]]
        fed_back = ~np.isnan(cloud_loop)
        self._cloud_loops.append(cloud_loop[fed_back])
        self._gaps.append(np.diff(rows[:, _AT["emitted"] : _AT["returned"] + 1], axis=1))
        cluster, category, node = (
            rows[:, _AT[name]].astype(np.int64) for name in ("cluster", "category", "node")
        )
        np.add.at(self._placed, (cluster, category, node), 1)
        fog_loop = rows[:, _AT["returned"]] - rows[:, _AT["emitted"]]
        self._cluster_sums += np.bincount(cluster, fog_loop, len(self._cluster_sums))
        met = fog_loop <= self._deadlines[category]  # nothing is less than NaN
        self._met += np.bincount(category[met], minlength=len(self._met))
        if self._emitted is not None:
            self._emitted.append(rows[:, _AT["emitted"]].copy())
            self._fed_back.append(fed_back)
            self._judged.append(np.where(np.isnan(self._deadlines[category]), np.nan, met))
        within = np.minimum(rows, horizon)
        busy = within[:, _AT["finished"]] - within[:, _AT["started"]]
        self._busy[:-1] += np.bincount(node, busy, len(self._world.nodes))
        cloud = within[:, _AT["cloud_finished"]] - within[:, _AT["cloud_started"]]
        self._busy[-1] += np.nansum(cloud)

    def result(self) -> dict[str, Any]:
        """Return the summary by name; a mean over nothing is None."""
        world = self._world
        capacity = [config.servers for config in (*world.fogs, world.cloud_provider)]
        used = self._busy / world.scenario.horizon / np.array(capacity)
        means = {
            name: self._sums[name] / size if size else None for name, size in self._sizes.items()
        }
        result = {
            "workloads": self._workloads,
            "unserved": self._unserved,
            **means,
            "utilisation": dict(zip((*world.nodes, world.cloud), used.tolist(), strict=True)),
            "placed": self._placed.tolist(),
            **dict(self._tails()),
            **self._deadlines_met(),
            "fairness": self._fairness(),
            "utilisation_mean": float(used[:-1].mean()),
        }
        if self._emitted and self._workloads >= LEAST_JOBS:
            result["blocks"] = self._blocks(np.concatenate(self._emitted))
        return result

    def _blocks(self, emitted: Floats) -> dict[str, Any]:
        """Return the intervals over blocks of the trace, and what ratios of Fog loops need."""
        cells = cells_of(emitted)
        fed_back, judged = np.concatenate(self._fed_back), np.concatenate(self._judged)
        widths = {}
        for name in (*DELAYS, *LOOPS):
            delays = self._delays(name)
            here = cells[fed_back] if name == "cloud_loop" else cells
            if delays.size >= LEAST_JOBS:
                widths[name] = mean_half_width(delays, here)
                tails = percentile_half_widths(delays, here, PERCENTILES)
                widths |= zip((f"{name}_p{p}" for p in PERCENTILES), tails, strict=True)
        known = ~np.isnan(judged)
        if known.sum() >= LEAST_JOBS:
            widths["deadline_met"] = mean_half_width(judged[known], cells[known])
        fog_loop = np.bincount(cells, self._delays("fog_loop"), CELLS)
        workloads = np.bincount(cells, minlength=CELLS)
        return {"ci95": widths, "workloads": workloads.tolist(), "fog_loop": fog_loop.tolist()}

    def _delays(self, name: str) -> Floats:
        """Return a delay of all jobs that have it."""
        if name == "cloud_loop":
            return np.concatenate([np.empty(0), *self._cloud_loops])
        begin, end = (_INSTANTS.index(instant) for instant in (DELAYS | LOOPS)[name])
        delays, at = np.empty(self._workloads), 0
        for gaps in self._gaps:  # block by block, so that memory holds the delays only once
            gaps[:, begin:end].sum(axis=1, out=delays[at : at + len(gaps)])
            at += len(gaps)
        return delays

    def _tails(self) -> Iterator[tuple[str, float | None]]:
        for name in (*DELAYS, *LOOPS):
            delays = self._delays(name)
            keys = [f"{name}_p{percentile}" for percentile in PERCENTILES]
            if delays.size:
                values = np.percentile(delays, PERCENTILES, overwrite_input=True).tolist()
                yield from zip(keys, values, strict=True)
            else:
                yield from dict.fromkeys(keys).items()

    def _deadlines_met(self) -> dict[str, Any]:
        """Return the shares of jobs whose Fog loop met its deadline; None where there is none."""
        jobs = self._placed.sum(axis=(0, 2))
        have = ~np.isnan(self._deadlines) & (jobs > 0)
        shares = [
            float(met / size) if known else None
            for met, size, known in zip(self._met, jobs, have, strict=True)
        ]
        overall = float(self._met[have].sum() / jobs[have].sum()) if have.any() else None
        by_application = dict(zip(self._world.categories, shares, strict=True))
        return {"deadline_met": overall, "deadline_met_by_application": by_application}

    def _fairness(self) -> float | None:
        """Return Jain's index of the clusters' mean Fog loops: 1 if all are equal, least 1/n."""
        jobs = self._placed.sum(axis=(1, 2))
        means = self._cluster_sums[jobs > 0] / jobs[jobs > 0]
        if not means.any():
            return None
        return float(means.sum() ** 2 / (means.size * (means**2).sum()))
