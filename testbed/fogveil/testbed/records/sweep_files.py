"""The names of what a sweep keeps."""

SWEPT = "sweep.json"
"""What was swept, with the scenarios before the sweep changes them, and where it comes from."""
