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

    def observe(self, observation: Observation) -> Floats:
        """Update the beliefs by what was disclosed at a decision and return the features."""
        now, job, cluster, category = observation[:4]
        available = observation.available
        belief, view = self.belief, self._view
        belief.observe(observation)
        responses = np.array(belief.responses(job, cluster, category))
        overtaken = np.array(belief.overtaken(job, cluster, category))
        service_times = np.array(belief.service)
        self.unit = unit = self._round_trip + float(service_times.mean())
        self._service = service = service_times[:, category]
        load = self._load(now)
        deviation = np.array(belief.deviations)[:, category]
        prior = responses + overtaken * service
        counts = np.array(belief.counts, float)
        # Of absent nodes nothing is known, and nothing follows from them for the others.
        present = slice(None) if available is None else list(available)
        columns = {
            Feature.PRIOR: prior / unit,
            Feature.GAP: (prior - prior[present].min()) / unit,
            Feature.SERVICE: service / unit,
            Feature.UP: np.array(view.up[cluster][category]) / unit,
            Feature.DOWN: np.array(view.down[cluster][category]) / unit,
            Feature.BACKLOG: np.array(belief.backlogs) / unit,
            Feature.COUNT: counts / 8,
            Feature.IN_TRANSIT: np.array(belief.in_transit) / 4,
            Feature.DEVIATION: deviation,
            Feature.DEVIATION_TIME: deviation * service / unit,
            Feature.FACTOR_VARIANCE: belief.factor_variance,
            Feature.MEAN_COUNT: counts[present].mean() / 8,
            Feature.OVERTAKEN: overtaken * service / unit,
            Feature.LOAD: load,
            Feature.MEAN_LOAD: load[present].mean(),
        }
        features = np.empty((len(counts), FEATURES), np.float32)
        for feature, column in columns.items():
            features[:, feature] = column
        np.minimum(features[:, Feature.PRIOR], HOPELESS, out=features[:, Feature.PRIOR])
        others = features[:, Feature.PRIOR + 1 :]
        np.clip(others, 0.0, LARGEST, out=others)
        return features

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
