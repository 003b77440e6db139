"""Work of hours in a terminal: how much is done, and how long the rest will take."""

from __future__ import annotations

import time

from fogveil.testbed.cli.options import err, print_line, progress_bar, say
from fogveil.testbed.experiments.planned_work import (
    Outstanding,
    Remaining,
    Task,
    describe_time,
    execute_outstanding,
)
from fogveil.testbed.workers.choice import Workers

REPORTED_SHARE, REPORTED_SECONDS = 0.05, 5.0
"""Share of the work, and time, between two lines where no terminal shows a bar."""


def execute_with_progress(outstanding: Outstanding, workers: Workers, title: str) -> None:
    """Execute all of it, showing the time that remains; after a stop the same command continues."""
    if not any(outstanding):
        return
    try:
        with (
            workers.open(say) as crew,
            progress_bar("{task.fields[left]} left", lines=False) as progress,
        ):
            remaining = Remaining(outstanding.seconds, crew.count())
            reported, last = 0.0, time.monotonic()
            left = describe_time(remaining.seconds)
            bar = progress.add_task(title, total=remaining.total, left=left)

            def on_done(task: Task) -> None:
                nonlocal reported, last
                remaining.finished(task)
                left = describe_time(remaining.seconds)
                progress.update(bar, completed=remaining.done, left=left)
                share = remaining.done / remaining.total
                waited = time.monotonic() - last >= REPORTED_SECONDS
                if task.name or (waited and share >= reported + REPORTED_SHARE):
                    reported, last = share, time.monotonic()
                    done = f"trained {task.name}: " if task.name else ""
                    if not err.is_terminal or task.name:
                        print_line(f"{done}{share:.0%} done, {left} left", err)

            execute_outstanding(outstanding, crew, on_done)
    except KeyboardInterrupt:
        err.print("stopped; the same command continues")
        raise
