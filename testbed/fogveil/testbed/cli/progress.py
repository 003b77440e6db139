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


AUDIT_STEPS = (
    ("starting", 12),
    ("trying every method", 4),
    ("running with policy", 10),
    ("judging every channel", 3),
    ("trying every topic", 2),
    ("attacking the page", 3),
    ("running twins of the whole run", 41),
    ("running twins in bursts", 40),
)
"""How the steps of an audit begin, and the seconds that each took when last measured."""


class AuditSteps:
    """The steps of an audit of some levels, with the time that is left."""

    def __init__(self, levels: int) -> None:
        self._expected = [each for _ in range(levels) for each in AUDIT_STEPS]
        self._place = 0
        self._begun = time.monotonic()

    def begin(self, step: str) -> str:
        """Return what to print of a step that begins."""
        later = enumerate(self._expected[self._place :], self._place)
        place = next((place for place, (name, _) in later if step.startswith(name)), None)
        if place is None:  # one that is not always needed
            return step
        self._place = place
        done = sum(seconds for _, seconds in self._expected[:place])
        rest = sum(seconds for _, seconds in self._expected[place:])
        # As fast as it was so far, once enough is done to tell.
        pace = (time.monotonic() - self._begun) / done if done >= AUDIT_STEPS[0][1] else 1.0
        return f"{step} ({place + 1} of {len(self._expected)}, about {duration(rest * pace)} left)"
