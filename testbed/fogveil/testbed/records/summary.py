"""The summary of a run: the five delays, the two loops, unserved jobs, utilisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from fogveil.testbed.records.join import COLUMNS, Counts, Floats
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


class Summary:
    """Adds up joined rows; means cover all jobs, also those served after the horizon."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sums = dict.fromkeys([*DELAYS, *LOOPS], 0.0)
        self._sizes = dict.fromkeys([*DELAYS, *LOOPS], 0)
        self._workloads = 0
        self._unserved = 0
        fogs, clusters, kinds = len(world.nodes), len(world.clusters), len(world.categories)
        self._busy = np.zeros(fogs + 1)
        self._placed = np.zeros((clusters, kinds, fogs), dtype=np.int64)

    def take(self, rows: Floats, counts: Counts) -> None:  # noqa: ARG002 (the interface of a sink)
        """Add a block of rows."""
        horizon = self._world.scenario.horizon
        self._workloads += len(rows)
        self._unserved += int((rows[:, _AT["finished"]] > horizon).sum())
        for name, (begin, end) in (DELAYS | LOOPS).items():
            delay = rows[:, _AT[end]] - rows[:, _AT[begin]]
            known = delay[~np.isnan(delay)]
            self._sums[name] += float(known.sum())
            self._sizes[name] += known.size
        cluster, category, node = (
            rows[:, _AT[name]].astype(np.int64) for name in ("cluster", "category", "node")
        )
        np.add.at(self._placed, (cluster, category, node), 1)
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
        return {
            "workloads": self._workloads,
            "unserved": self._unserved,
            **means,
            "utilisation": dict(zip((*world.nodes, world.cloud), used.tolist(), strict=True)),
            "placed": self._placed.tolist(),
        }
