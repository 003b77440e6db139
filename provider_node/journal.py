"""A provider's own record: one line per job it served, in a plain file of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from provider_node.node import Served

HEADER = "job,category,arrived,started,finished,passed_on"


def journal_path(folder: Path, episode: int) -> Path:
    """Return where the journal of an episode lies."""
    return folder / f"journal-{episode:04}.csv"


class Journal:
    """Appends the jobs that finished; numbers are written so that they read back exactly."""

    def __init__(self, folder: Path, episode: int) -> None:
        path = journal_path(folder, episode)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="ascii")
        self._file.write(HEADER + "\n")
        self._file.flush()

    def add(self, served: Iterable[Served], passed_on: Iterable[bool]) -> None:
        """Note jobs, and whether each went on: to the Cloud, or from the Cloud to its cluster.

        They are handed to the operating system at once: what is noted outlives the provider.
        """
        self._file.writelines(
            f"{job},{category},{arrived!r},{started!r},{finished!r},{on:d}\n"
            for (job, category, arrived, started, finished), on in zip(
                served, passed_on, strict=True
            )
        )
        self._file.flush()

    def close(self) -> None:
        """Write the rest."""
        self._file.close()


def read_journal(path: Path) -> Iterator[tuple[Served, bool]]:
    """Read a journal back."""
    with path.open(encoding="ascii") as file:
        if file.readline().rstrip("\n") != HEADER:
            raise ValueError(f"{path} is not a provider's journal")
        for line in file:
            job, category, arrived, started, finished, on = line.split(",")
            times = float(arrived), float(started), float(finished)
            yield (int(job), int(category), *times), on == "1\n"
