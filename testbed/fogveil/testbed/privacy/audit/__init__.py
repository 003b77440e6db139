"""Audit: attacks a testbed with planted secrets, and gives a verdict on each privacy promise."""
