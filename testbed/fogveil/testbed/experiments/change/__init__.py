"""What happens when the world changes: its kinds of change, their runs, and docs/change.md."""
