"""veil-total: the agent `veil` at the paper's level of privacy, from the total of all counts.

Like PARL it is a double DQN that is given the cluster, the category, its own past placements, the
public latencies and Σq, and nothing else. Three things differ, each of which PARL lacks where it
fails (docs/results.md has the ablation):

- the state: the queues that follow from its own placements and the service times that explain the
  totals (`TotalBelief`), jobs in transit included, in place of d, which forgets within a few
  decisions;
- the reward: the delay that this very decision caused (`marginal_cost`), by the same estimates, in
  place of the change of Σq, in which all earlier decisions show at once;
- one network for all nodes, which learns the error of the expected response: so it can be trained
  on one scenario and act on others.
"""

from __future__ import annotations

import numpy as np

from fogveil.agent.availability import greatest
from fogveil.agent.inference.total_belief import TotalBelief
from fogveil.agent.learning.actor import Floats
from fogveil.agent.learning.node_features import Feature
from fogveil.agent.learning.veil import Veil, VeilActor
from fogveil.agent.policy import Level, Observation


class VeilTotalActor(VeilActor):
    """The trained agent."""

    needs = Level.TOTAL

    def make_belief(self) -> TotalBelief:
        """Return the beliefs before any total."""
        self._belief = TotalBelief(self.view)
        return self._belief

    def values(self, observation: Observation) -> Floats:
        """Return the nodes' values, by the network where the service times are known.

        Where the best node by expected response is an unknown one, it is tried. Otherwise unknown
        ones have no value: the network has learned from known ones alone.
        """
        prior = -self.features[:, Feature.PRIOR]
        known = self._belief.known
        if not known[greatest(prior, observation.available)]:
            return prior
        return np.where(known, super().values(observation), -np.float32(np.inf))


class VeilTotal(Veil):
    """The agent that needs nothing but the total, learning."""

    needs = Level.TOTAL
    actor_kind = VeilTotalActor
