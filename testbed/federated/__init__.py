"""The federated testbed: the clock, the sources' process, starting everything, joining records."""
