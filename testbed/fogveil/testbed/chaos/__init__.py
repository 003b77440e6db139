"""Chaos: runs that faults are drawn for from a seed, and that must end as if there were none.

Simulated runs hold the code of all participants in one process, under virtual time and a simulated
network; real ones have processes or containers that are killed, stopped and cut off.
"""
