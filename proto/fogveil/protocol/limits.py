"""Numbers that participants of one run must agree on."""

LARGEST_WINDOW = 256
"""Decisions per window at most; sources announce at least so many of their next emissions."""
