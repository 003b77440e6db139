"""A fog provider: the node that serves jobs, and what it lets others know of it."""
