"""Workers: where the many runs of a command are computed, on this machine or on many hosts."""
