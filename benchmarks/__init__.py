"""Benchmarks: programs that print what they measure on this machine, rivals in the same run."""
