"""Placement as a Gymnasium environment, and trained models of any library as policies.

`gymnasium.make("fogveil.gym:fogveil/Placement-v0", scenario="tiny")` makes the environment.
"""

import gymnasium

from fogveil.gym.model_export import policy_from_callable, policy_from_sb3, save_sb3
from fogveil.gym.placement import PlacementEnv
from fogveil.gym.rewards import REWARDS, Outcome

__all__ = [
    "REWARDS",
    "Outcome",
    "PlacementEnv",
    "policy_from_callable",
    "policy_from_sb3",
    "save_sb3",
]

if "fogveil/Placement-v0" not in gymnasium.registry:
    gymnasium.register("fogveil/Placement-v0", "fogveil.gym:PlacementEnv")
