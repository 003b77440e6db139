"""How far a command is, and how long the rest takes: a bar in a terminal, else lines."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

MINUTE, HOUR = 60, 3600
LINES_EVERY = 5.0
"""Seconds between two lines where no terminal shows a bar."""


class CommandProgress(Progress):
    """A bar that only a terminal shows; into a pipe or a file goes a line every few seconds."""

    def __init__(self, console: Console, *columns: str, lines: bool) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            *(TextColumn(column) for column in columns),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._lines = lines and not console.is_terminal
        self._begun = self._printed = time.monotonic()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Set what is done."""
        super().update(task_id, **changes)
        now = time.monotonic()
        if not self._lines or now - self._printed < LINES_EVERY:
            return
        task = next(task for task in self.tasks if task.id == task_id)
        if task.total:
            self._printed = now
            share = min(task.completed / task.total, 1.0)
            left = (now - self._begun) * (1 / share - 1) if share else None
            said = "" if left is None else f", {duration(left)} left"
            line = f"{task.description}: {share:.0%} done{said}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Return a time to wait in the unit that fits it."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"
