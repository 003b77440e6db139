"""The inputs of the networks of veil and veil-total: for each node, what is believed of it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from fogveil.agent.inference.fog_belief import FogBelief
from fogveil.agent.inference.total_belief import TotalBelief
from fogveil.agent.learning.actor import Floats
from fogveil.agent.policy import AgentView, Observation

MEMORY = 30.0
"""Typical responses over which a node's load is averaged."""
LARGEST = 4.0
"""Features but the prior are clipped here: a node beyond it is out of the question."""
HOPELESS = 40.0
"""The prior is clipped here, so that hopeless nodes keep their order; also the worst reward."""


class Feature(IntEnum):
    """A node's features by their column; trained networks rely on this order.

    Times are divided by the typical response, counts by a typical size.
    """

    PRIOR = 0
    """Expected response of the job, plus the delay it causes to jobs it overtakes."""
    GAP = 1
    """The prior's distance to that of the best node."""
    SERVICE = 2
    """Expected service time."""
    UP = 3
    """Latency to the node."""
    DOWN = 4
    """Latency back."""
    BACKLOG = 5
    """Expected time until the node has served what arrived there."""
    COUNT = 6
    """The disclosed count; at level `total` the believed one."""
    IN_TRANSIT = 7
    """Own jobs on their way to the node."""
    DEVIATION = 8
    """Standard deviation of the expected service time, relative to it."""
    DEVIATION_TIME = 9
    """The same as a time."""
    FACTOR_VARIANCE = 10
    """Squared coefficient of variation of service; equal for all nodes."""
    MEAN_COUNT = 11
    """Mean count of all nodes."""
    OVERTAKEN = 12
    """The delay that the job causes to jobs it overtakes."""
    LOAD = 13
    """Work placed on the node lately, per time."""
    MEAN_LOAD = 14
    """Mean load of all nodes."""


FEATURES = len(Feature)


_TIMES = [
    Feature.PRIOR,
    Feature.GAP,
    Feature.SERVICE,
    Feature.UP,
    Feature.DOWN,
    Feature.BACKLOG,
    Feature.DEVIATION_TIME,
    Feature.OVERTAKEN,
]
_COUNTS = [Feature.COUNT, Feature.MEAN_COUNT]
_LARGEST = np.array([[HOPELESS], *[[LARGEST]] * (FEATURES - 1)])


class NodeFeatures:
    """Computes the features of all nodes, [node, feature], from the beliefs about them."""

    def __init__(self, view: AgentView, belief: FogBelief | TotalBelief) -> None:
        self.belief = belief
        self._set_view(view)
        self._work = np.zeros(len(view.nodes))
        """Service time placed on each node, with exponential forgetting."""
        self._last_time = 0.0

    def update(self, view: AgentView) -> None:
        """Compute by other latencies from now on."""
        self._set_view(view)
        self.belief.update(view)

    def _set_view(self, view: AgentView) -> None:
        self._view = view
        self._round_trip = float((np.array(view.up) + np.array(view.down)).mean())
        self._latencies: dict[tuple[int, int], npt.NDArray[np.float64]] = {}

    def observe(self, observation: Observation) -> Floats:
        """Update the beliefs by what was disclosed at a decision and return the features."""
        now, job, cluster, category = observation[:4]
        available = observation.available
        belief = self.belief
        belief.observe(observation)
        responses = np.asarray(belief.responses(job, cluster, category))
        overtaken = np.asarray(belief.overtaken(job, cluster, category))
        service_times = belief.service
        self.unit = unit = self._round_trip + _mean(service_times)
        self._service = service = service_times[:, category]
        load = self._load(now)
        deviation = belief.deviations[:, category]
        delay = overtaken * service
        prior = responses + delay
        up, down = self._both_latencies(cluster, category)
        counts = np.array(belief.counts, float)
        # Of absent nodes nothing is known, and nothing follows from them for the others.
        present = slice(None) if available is None else list(available)
        features = np.empty((FEATURES, len(counts)))
        features[Feature.PRIOR] = prior
        features[Feature.GAP] = prior - prior[present].min()
        features[Feature.SERVICE] = service
        features[Feature.UP] = up
        features[Feature.DOWN] = down
        features[Feature.BACKLOG] = belief.backlogs
        features[Feature.COUNT] = counts
        features[Feature.IN_TRANSIT] = belief.in_transit
        features[Feature.DEVIATION] = deviation
        features[Feature.DEVIATION_TIME] = deviation * service
        features[Feature.FACTOR_VARIANCE] = belief.factor_variance
        features[Feature.MEAN_COUNT] = _mean(counts[present])
        features[Feature.OVERTAKEN] = delay
        features[Feature.LOAD] = load
        features[Feature.MEAN_LOAD] = _mean(load[present])
        features[_TIMES] /= unit
        features[_COUNTS] /= 8
        features[Feature.IN_TRANSIT] /= 4
        np.maximum(features[1:], 0.0, out=features[1:])
        np.minimum(features, _LARGEST, out=features)
        return np.ascontiguousarray(features.T, np.float32)

    def _both_latencies(self, cluster: int, category: int) -> npt.NDArray[np.float64]:
        """Return the latencies to all nodes and back."""
        key = cluster, category
        if key not in self._latencies:
            up, down = self._view.up, self._view.down
            self._latencies[key] = np.array([up[cluster][category], down[cluster][category]])
        return self._latencies[key]

    def _load(self, now: float) -> npt.NDArray[np.float64]:
        memory = MEMORY * self.unit
        self._work *= np.exp((self._last_time - now) / memory)
        self._last_time = now
        # Divided by the time that the memory covers: a young episode covers little.
        load: npt.NDArray[np.float64] = self._work / (memory * -np.expm1(-(now + 1e-9) / memory))
        return load

    def placed(self, observation: Observation, action: int) -> None:
        """Add a placement to the beliefs: it explains the next counts."""
        self._work[action] += self._service[action]
        self.belief.placed(action, observation.job, observation.cluster, observation.category)


def _mean(values: npt.NDArray[np.float64]) -> float:
    """Return what `values.mean()` does, at less cost for few values."""
    return float(np.add.reduce(values, axis=None)) / values.size
