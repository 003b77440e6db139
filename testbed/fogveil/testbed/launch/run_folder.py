"""The folder of one testbed: locked while it runs, and free of what an earlier run left there."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO

from fogveil.core.errors import InputError
from fogveil.core.files import OWNER_ONLY
from fogveil.core.safe_text import safe_text
from fogveil.protocol.identity import AUDITOR
from fogveil.testbed.records.output import reporting_write_errors

LOG = "testbed.log"
PARTICIPANTS = "participants"
RESULTS = (
    *(
        PARTICIPANTS,
        AUDITOR,
        "started.json",
        "resume.json",
        "run.json",
        "jobs.parquet",
        "decisions.parquet",
    ),
)
"""What a run leaves in its folder, beside its log and folders for several episodes."""


LONGEST_LINE = 4000
"""Characters of a line in the log."""
LOG_SHARE = 16 * 2**20
"""Characters that each participant may write to the log; the rest of its lines are left out."""


class RunFolder:
    """A folder that a testbed has to itself, with the log that shows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log: IO[str] | None = None
        self._written: Counter[str] = Counter()
        """Characters in the log, by who wrote them."""

    @property
    def participants(self) -> Path:
        """Where each participant has a folder of its own."""
        return self.path / PARTICIPANTS

    def claim(self, *, goes_on: bool = False) -> None:
        """Lock the folder, and remove what would be taken for results of this run.

        A run that `goes_on` after its launcher was lost finds what it had recorded.
        """
        with reporting_write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.participants.exists() and not (self.path / LOG).exists():
                raise InputError(
                    f"{self.participants} exists, but {self.path} is not the folder of an earlier "
                    "run: choose another --out"
                )
            log = self._lock()
            if goes_on:
                log.seek(0, os.SEEK_END)
                return
            log.truncate()
            for path in self._leftovers():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _lock(self) -> IO[str]:
        # Not truncated before it is ours: another testbed may be writing to it.
        descriptor = os.open(self.path / LOG, os.O_WRONLY | os.O_CREAT, OWNER_ONLY)
        log = os.fdopen(descriptor, "w", encoding="utf-8", errors="replace")
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            log.close()
            raise InputError(
                f"{self.path}: another testbed is running in this folder: choose another --out"
            ) from error
        self._log = log
        return log

    def _leftovers(self) -> list[Path]:
        results = [self.path / name for name in RESULTS]
        return [*filter(Path.exists, results), *self.path.glob("episode-[0-9]*")]

    def log(self, name: str, line: str) -> None:
        """Add a line to the log, with the time and with who wrote it."""
        assert self._log is not None
        if self._written[name] > LOG_SHARE:
            return
        self._written[name] += len(line) + 1
        if self._written[name] > LOG_SHARE:
            line = f"{name} has written too much: its lines are left out from here on"
        line = safe_text(line, LONGEST_LINE)
        now = time.strftime("%H:%M:%S")
        with reporting_write_errors(self.path / LOG):
            self._log.write(f"{now} {name:>10} | {line}\n")
            self._log.flush()

    def close(self) -> None:
        """Close the log, which unlocks the folder."""
        if self._log:
            with suppress(OSError):  # of a line that could not be written, which was reported
                self._log.close()


def is_running(folder: Path) -> bool:
    """Tell whether a testbed is running in a folder: it keeps its log locked."""
    try:
        with (folder / LOG).open("rb") as log:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # not the folder of a testbed
        return False
    return False
