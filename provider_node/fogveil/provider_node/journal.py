"""A provider's own record: one line per job it served, in a plain file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fogveil.core.files import LARGEST_RECORD, open_private, read_record_lines
from fogveil.provider_node.node import Served

HEADER = "job,category,arrived,started,finished,passed_on,demand"


class JournalLine(NamedTuple):
    """A job that was served."""

    served: Served
    passed_on: bool
    """Whether it went on: to the Cloud, or from the Cloud to its cluster."""
    demand: float | None
    """What it demanded, where jobs bring their own."""


def journal_path(folder: Path, episode: int) -> Path:
    """Return where the journal of an episode lies."""
    return folder / f"journal-{episode:04}.csv"


class Journal:
    """Appends finished jobs; floats are written so that they read back exactly."""

    def __init__(self, folder: Path, episode: int) -> None:
        path = journal_path(folder, episode)
        self._file = open_private(path)
        self._file.write(HEADER + "\n")
        self._file.flush()

    def add(
        self, served: Iterable[Served], passed_on: Iterable[bool], demands: Mapping[int, float]
    ) -> None:
        """Append jobs, with whether each went on and what those demanded that bring their own.

        They are flushed at once, so that the journal outlives a killed provider.
        """
        self._file.writelines(
            f"{job},{category},{arrived!r},{started!r},{finished!r},{on:d},{demands.get(job, '')}\n"
            for (job, category, arrived, started, finished), on in zip(
                served, passed_on, strict=True
            )
        )
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal_lines(path: Path, limit: int = LARGEST_RECORD) -> Iterator[JournalLine]:
    """Read a journal back, which its provider may have replaced by anything."""
    for line in read_record_lines(path, HEADER, limit):
        job, category, arrived, started, finished, on, demand = line.split(",")
        if on not in ("0", "1"):
            raise ValueError(f"{on!r} in the place of 0 or 1")
        times = float(arrived), float(started), float(finished)
        own = float(demand) if demand else None
        yield JournalLine((int(job), int(category), *times), on == "1", own)


def read_journal(path: Path) -> Iterator[tuple[Served, bool]]:
    """Read back what was served, and whether it went on."""
    return ((line.served, line.passed_on) for line in read_journal_lines(path))
