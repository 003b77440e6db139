"""Finding what was recorded, of a run that is over or of one that is at work."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from pathlib import Path
from urllib.parse import unquote

from fogveil.errors import InputError
from fogveil.recording import TRAFFIC
from testbed.traffic import Crossing, Tail

LIVE = Path("runs/up")
"""Where `fogveil up` puts testbeds that were given no place."""
LOG = "testbed.log"
PARTICIPANTS = "participants"
CONFIG = "config.json"
JOINED = "run.json", "episode-0000/run.json"

Noted = tuple[str, Crossing]
"""A crossing, and by whom it was noted."""


class Recordings:
    """The recordings below a place: of a whole run, or of one participant."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._tails: dict[Path, Tail] = {}
        with _reading(place):
            exists = place.exists()
        if not exists:
            raise InputError(f"{place}: does not exist")
        if not self.find() and not self.at_work():
            raise InputError(
                f"{place}: no recording is here; `fogveil up` and `fogveil run --federated "
                f"--record --out DIR` leave them as DIR/{PARTICIPANTS}/NAME/{TRAFFIC}"
            )

    def find(self) -> list[Path]:
        """Return the files that are there by now."""
        with _reading(self.place):
            if self.place.is_file():
                return [self.place]
            if (self.place / TRAFFIC).exists():
                return [self.place / TRAFFIC]
            return [path for path in self._below(TRAFFIC) if path.exists()]

    def _below(self, name: str) -> list[Path]:
        """Return where participants would have a file of this name."""
        below = self.place / PARTICIPANTS
        # Not by glob, which passes over what it may not read as if it were not there.
        return sorted(
            folder / name for folder in (below if below.is_dir() else self.place).iterdir()
        )

    @property
    def parties(self) -> set[str]:
        """Return who has recorded, or should have: of what crosses between two both ends count."""
        return {_name(path) for path in self.find()} | self.missing

    @property
    def missing(self) -> set[str]:
        """Return those of a whole run who were to record, and whose recording is not there."""
        with _reading(self.place):
            if not (self.place / PARTICIPANTS).is_dir():
                return set()
            folders = [path.parent for path in self._below(CONFIG) if path.exists()]
            silent = [folder for folder in folders if not (folder / TRAFFIC).exists()]
            return {_name(folder / CONFIG) for folder in silent if _records(folder / CONFIG)}

    def at_work(self) -> bool:
        """Tell whether the testbed still runs."""
        return at_work(self.place)

    def complete(self) -> bool:
        """Tell whether the run came to its end, and was joined: nothing was on its way then.

        A testbed that begins takes away what one before it joined in the same folder.
        """
        with _reading(self.place):
            ended = (self.place / LOG).is_file() and not self.at_work()
            return ended and any((self.place / name).is_file() for name in JOINED)

    def new(self) -> Iterator[Noted]:
        """Yield what was recorded since this was last asked, in the order of time."""
        for path in self.find():
            self._tails.setdefault(path, Tail(path))
        return merge(
            *(_noted(_name(path), tail) for path, tail in self._tails.items()),
            key=lambda noted: noted[1].at,
        )


def at_work(place: Path) -> bool:
    """Tell whether a testbed runs in this folder: it holds its log locked."""
    try:
        with (place / LOG).open("rb") as log:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no testbed's folder
        return False
    return False


def _noted(name: str, tail: Tail) -> Iterator[Noted]:
    for crossing in tail.new():
        yield name, crossing


@contextmanager
def _reading(place: Path) -> Iterator[None]:
    """Turn what may not be looked at into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename or place}: cannot be read: {error.strerror}") from error


def _records(config: Path) -> bool:
    """Tell whether a participant was told to record."""
    try:
        return bool(json.loads(config.read_text(encoding="utf-8"))["record"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{config}: is not a participant's configuration") from error


def _name(path: Path) -> str:
    return unquote(path.absolute().parent.name)


def find_live(place: Path | None) -> Recordings:
    """Return the recordings of the testbed at work: here, or else the newest one."""
    if place is not None:
        found = Recordings(place)
        if not found.at_work():
            raise InputError(f"{place}: no testbed is at work here; leave out --live")
        return found
    logs = sorted(LIVE.glob(f"*/{LOG}"), key=lambda log: log.stat().st_mtime, reverse=True)
    for log in logs:
        try:
            found = Recordings(log.parent)
        except InputError:
            continue  # one that recorded nothing
        if found.at_work():
            return found
    raise InputError(
        f"no testbed is at work in {LIVE}: bring one up with `fogveil up`, or name its folder"
    )
