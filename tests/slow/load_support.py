"""What the tests of load share: what processes hold, and whether it grows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

MIB = 2**20


class Held(NamedTuple):
    """What a process holds."""

    memory: int
    """Resident bytes."""
    files: int
    threads: int


def descendants(pid: int) -> Iterator[int]:
    """Yield all processes below one."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def held_by(pid: int) -> Held | None:
    """Return what a process holds, None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    numbers = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "VmRSS" not in numbers:
        return None
    return Held(1024 * int(numbers["VmRSS"].split()[0]), files, int(numbers["Threads"]))


def shared_out(pids: list[int]) -> int:
    """Return the bytes of memory of processes, pages that several hold shared out among them."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += 1024 * int(text.partition("\nPss:")[2].split()[0])
    return total


def slope(seconds: list[float], values: list[float]) -> tuple[float, float]:
    """Return by how much values grow in an hour, and the half-width of its 95 % interval.

    Samples that follow each other are alike: the means of twenty stretches take their place.
    """
    pieces = [
        (np.mean(times), np.mean(part))
        for times, part in zip(np.array_split(seconds, 20), np.array_split(values, 20), strict=True)
    ]
    fit = stats.linregress(*zip(*pieces, strict=True))
    return 3600 * fit.slope, 3600 * fit.stderr * stats.t.ppf(0.975, len(pieces) - 2)
