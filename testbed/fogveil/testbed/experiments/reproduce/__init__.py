"""`fogveil reproduce`: the paper's whole evaluation, from trainings to docs/results.md."""
