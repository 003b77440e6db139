"""What counts and one's own placements tell about the nodes: beliefs to decide by, and bounds."""
