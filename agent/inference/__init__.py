"""What an agent can infer of the nodes from their counts and its own placements."""
