"""The log of one training, finished or running, as the page draws it."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from fogveil.testbed.dashboard.timeline import Mark
from fogveil.testbed.records.training_log import DESCRIPTION, LOG

SHOWN = ("decisions", "last_returns", "epsilon")
MOST = 800
"""Episodes that are drawn; of more, every second one."""


class TrainingSource:
    """One training, by its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.resolve().name
        self._begin()

    def _begin(self) -> None:
        self.marks: list[Mark] = []
        """When each phase began, by decisions."""
        self.episodes = 0
        self.last: dict[str, Any] = {}
        """The last episode."""
        self._curve: list[tuple[Any, ...]] = []
        self._every = 1
        self._offset = 0

    @staticmethod
    def is_training(folder: Path) -> bool:
        """Return whether a folder holds a training, which may have just begun."""
        return (folder / LOG).is_file() or (folder / DESCRIPTION).is_file()

    @property
    def running(self) -> bool:
        """Whether a command is training in the folder."""
        try:
            with (self.folder / ".lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def update(self) -> None:
        """Read the episodes that were finished since the last time."""
        try:
            with (self.folder / LOG).open("rb") as file:
                if file.seek(0, 2) < self._offset:  # continued from an earlier checkpoint
                    self._begin()
                file.seek(self._offset)
                content = file.read().rpartition(b"\n")[0]
        except OSError:  # not there yet
            return
        self._offset += len(content) + 1 if content else 0
        for line in content.splitlines():
            self._add(json.loads(line))

    def _add(self, episode: dict[str, Any]) -> None:
        before = self.last.get("phase")
        if before and episode["phase"] != before:
            self.marks.append(Mark(self.last["decisions"], f"{episode['phase']} begins"))
        self.last = episode
        if self.episodes % self._every == 0:
            self._curve.append(tuple(episode[key] for key in SHOWN))
        self.episodes += 1
        if len(self._curve) > MOST:
            self._curve, self._every = self._curve[::2], 2 * self._every

    def state(self) -> dict[str, Any]:
        """Return the curves and where the training is."""
        columns = zip(*self._curve, strict=True) if self._curve else ((), (), ())
        last = {key: self.last.get(key) for key in ("phase", "decisions", "epsilon", "loss")}
        return {
            **{key: list(values) for key, values in zip(SHOWN, columns, strict=True)},
            "episodes": self.episodes,
            "last": last,
            "running": self.running,
            "marks": self.marks,
        }
