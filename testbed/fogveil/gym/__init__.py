"""Placement as a Gymnasium environment: `gymnasium.make("fogveil.gym:fogveil/Placement-v0", …)`."""

import gymnasium

from fogveil.gym.placement import PlacementEnv

__all__ = ["PlacementEnv"]

if "fogveil/Placement-v0" not in gymnasium.registry:
    gymnasium.register("fogveil/Placement-v0", "fogveil.gym:PlacementEnv")
