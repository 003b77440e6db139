"""Finding and reading the recordings of a run, finished or still running."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from pathlib import Path
from urllib.parse import unquote

from google.protobuf.message import DecodeError

from fogveil.core.errors import InputError
from fogveil.core.files import LARGEST_CONFIG, open_untrusted, read_untrusted
from fogveil.protocol.channels import PROTOCOL
from fogveil.protocol.recording import REQUEST, TRAFFIC
from fogveil.testbed.launch.run_folder import LOG, PARTICIPANTS, is_running
from fogveil.testbed.privacy.inspect.crossing import Crossing

LIVE = Path("runs/up")
"""Where `fogveil up` puts testbeds by default."""
CONFIG = "config.json"
JOIN = "/fogveil.v1.ClockService/Join"
LONGEST_LINE = 2**27
"""Bytes of a recorded crossing at most: some times those of the largest message."""
JOINED = "run.json", "episode-0000/run.json"

RecordedCrossing = tuple[str, Crossing]
"""A crossing, and the participant that recorded it."""


def read_recording(path: Path) -> Iterator[Crossing]:
    """Yield the crossings in a participant's recording."""
    return RecordingTail(path).read_new()


class RecordingTail:
    """A recording that may still grow: each read returns what was added since the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        """Bytes of the complete lines that were read."""

    def read_new(self) -> Iterator[Crossing]:
        """Yield the new crossings; a line that is not complete yet is left for the next read."""
        try:
            # Its folder may be a link of the user's; the recorder cannot replace its own folder.
            with open_untrusted(self._path.parent.resolve() / self._path.name) as file:
                file.seek(self._offset)
                while line := file.readline(LONGEST_LINE):
                    if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                        return
                    self._offset += len(line)
                    crossing = Crossing.parse(line)
                    self._check_protocol(crossing)
                    yield crossing
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self._path}: is not a recording of messages") from error

    def _check_protocol(self, crossing: Crossing) -> None:
        """Refuse what a participant recorded that greeted the clock by a later protocol.

        Earlier ones have no message that this one cannot read.
        """
        if (crossing.method, crossing.kind) != (JOIN, REQUEST):
            return
        if crossing.sender != _participant(self._path):
            return  # the clock records what any stranger claims
        try:
            spoken = crossing.message.hello.protocol
        except DecodeError:
            return  # which `Crossing.unexplained` reports
        if spoken > PROTOCOL:
            raise InputError(
                f"{self._path}: was recorded by protocol {spoken}, and this version reads "
                f"protocols up to {PROTOCOL}: use the one that recorded it"
            )


class Recordings:
    """The recordings below a path: a run's folder, one participant's folder, or one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tails: dict[Path, RecordingTail] = {}
        with _readable(path):
            exists = path.exists()
        if not exists:
            raise InputError(f"{path}: does not exist")
        if not self.files() and not self.is_running():
            raise InputError(
                f"{path}: no recording found; `fogveil up` and `fogveil run --federated "
                f"--record --out DIR` write them to DIR/{PARTICIPANTS}/NAME/{TRAFFIC}"
            )

    def files(self) -> list[Path]:
        """Return the recordings that exist now."""
        with _readable(self.path):
            if self.path.is_file():
                return [self.path]
            if (self.path / TRAFFIC).exists():
                return [self.path / TRAFFIC]
            return [path for path in self._in_participants(TRAFFIC) if path.exists()]

    def _in_participants(self, name: str) -> list[Path]:
        """Return the path of a file in each participant's folder, whether it exists or not."""
        participants = self.path / PARTICIPANTS
        # Not by glob, which silently skips folders that may not be read.
        return sorted(
            folder / name
            for folder in (participants if participants.is_dir() else self.path).iterdir()
        )

    @property
    def recorders(self) -> set[str]:
        """The participants that recorded, or should have: between two of them both ends count."""
        return {_participant(path) for path in self.files()} | self.missing

    @property
    def missing(self) -> set[str]:
        """The participants of a run that were configured to record and have no recording."""
        with _readable(self.path):
            if not (self.path / PARTICIPANTS).is_dir():
                return set()
            folders = [path.parent for path in self._in_participants(CONFIG) if path.exists()]
            without = [folder for folder in folders if not (folder / TRAFFIC).exists()]
            return {
                _participant(folder / CONFIG) for folder in without if _records(folder / CONFIG)
            }

    def is_running(self) -> bool:
        """Tell whether the testbed is still running."""
        return is_running(self.path)

    def is_complete(self) -> bool:
        """Tell whether the run reached its end and was joined, so that no message was in flight.

        A testbed that starts in a folder removes the joined records of the one before it.
        """
        with _readable(self.path):
            ended = (self.path / LOG).is_file() and not self.is_running()
            return ended and any((self.path / name).is_file() for name in JOINED)

    def read_new(self) -> Iterator[RecordedCrossing]:
        """Yield what was recorded since the last call, in order of time."""
        for path in self.files():
            self._tails.setdefault(path, RecordingTail(path))
        return merge(
            *(_recorded_by(_participant(path), tail) for path, tail in self._tails.items()),
            key=lambda recorded: recorded[1].at,
        )


def _recorded_by(name: str, tail: RecordingTail) -> Iterator[RecordedCrossing]:
    for crossing in tail.read_new():
        yield name, crossing


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Report a file system error as wrong input."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename or path}: cannot be read: {error.strerror}") from error


def _records(config: Path) -> bool:
    """Tell whether a participant was configured to record."""
    try:
        return bool(json.loads(read_untrusted(config, LARGEST_CONFIG))["record"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{config}: is not a participant's configuration") from error


def _participant(path: Path) -> str:
    """Return the name of the participant in whose folder a file is."""
    return unquote(path.absolute().parent.name)


def find_live(path: Path | None) -> Recordings:
    """Return the recordings of the running testbed at a path, or else of the newest one."""
    if path is not None:
        recordings = Recordings(path)
        if not recordings.is_running():
            raise InputError(f"{path}: no testbed is running here; leave out --live")
        return recordings
    logs = sorted(LIVE.glob(f"*/{LOG}"), key=lambda log: log.stat().st_mtime, reverse=True)
    for log in logs:
        try:
            recordings = Recordings(log.parent)
        except InputError:
            continue  # one without recordings
        if recordings.is_running():
            return recordings
    raise InputError(
        f"no testbed is running in {LIVE}: start one with `fogveil up`, or name its folder"
    )
