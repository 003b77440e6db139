"""Benchmarks: they print what they measure on this machine, side by side in one run."""
