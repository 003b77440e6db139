"""Launching a federated testbed: configurations, identities, processes or containers."""
