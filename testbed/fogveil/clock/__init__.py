"""The clock: grants simulated time to the participants of a federated testbed."""
