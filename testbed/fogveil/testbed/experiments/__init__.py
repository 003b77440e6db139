"""Experiments: many runs and trainings; `demo` and `results` are programs (`python -m`)."""
