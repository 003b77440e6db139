"""Privacy: what crosses (inspect), what is promised (audit), and what still leaks (leakage)."""
