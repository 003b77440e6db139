"""Sweeps: any keys of a scenario, policies, agents to train and seeds, in one tidy table."""
