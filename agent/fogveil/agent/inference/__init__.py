"""What counts and the agent's own placements reveal of the nodes: beliefs, bounds, estimators."""
