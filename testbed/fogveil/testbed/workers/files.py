"""The driver's own files that a computation reads, sent to a worker that cannot open them.

Scenarios travel as values, and what ships with the package is on every host. There remain graphs,
traces, trained agents, and users' policies with the modules that they import.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import fogveil.agent.policies as policies
from fogveil.agent.policy_files import read_policy_files
from fogveil.core.errors import InputError
from fogveil.core.files import write_private
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.source_tree import search_path_files

PREFIX = "fogveil-"
"""Of the names of temporary folders."""
UNPACKED = 16
"""The files of so many different computations lie unpacked at a worker."""


class SentFiles(NamedTuple):
    """Files with their content; equal ones are equal, wherever they were read."""

    places: tuple[tuple[str, str], ...]
    """Paths at the driver, and where each is put in a folder of the worker."""
    contents: tuple[tuple[str, bytes], ...]

    @property
    def digest(self) -> str:
        """What tells these files from others."""
        digest = hashlib.sha256(repr(self.places).encode())
        for name, content in self.contents:
            digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
        return digest.hexdigest()


class FileList:
    """Files to be sent, by their path at the driver, each with those that must lie beside it."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._contents: dict[str, bytes] = {}

    def add(self, path: Path) -> None:
        """Add a file."""
        try:
            self._put(path, {path.name: path.read_bytes()})
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error

    def add_scenario(self, scenario: Scenario) -> None:
        """Add the graph and the trace of a scenario, if it has them."""
        for table in (scenario.topology, scenario.sources):
            if file := getattr(table, "file", None):
                self.add(Path(file))

    def add_policy(self, policy: str) -> None:
        """Add a trained agent's file, or a user's policy with all modules that it imports."""
        path = policies.file_of(policy)
        if path is None:
            return
        if not policies.is_foreign(policy):
            self.add(path)
            return
        files = read_policy_files(path)
        elsewhere = search_path_files(files.imports())
        others = {name: found.read_bytes() for name, found in elsewhere.items()}
        self._put(path, {**others, **dict(files.contents)})

    def add_folder(self, folder: Path) -> None:
        """Add all that is in a folder, which may not exist yet."""
        inside = {f"{folder.name}/{name}": c for name, c in read_folder(folder).items()}
        self._put(folder, inside)

    def read(self) -> SentFiles:
        """Return them with their content."""
        return SentFiles(tuple(self._places.items()), tuple(self._contents.items()))

    def _put(self, path: Path, contents: Mapping[str, bytes]) -> None:
        if str(path) not in self._places:
            number = len(self._places)
            self._places[str(path)] = f"{number}/{path.name}"
            self._contents |= {f"{number}/{name}": content for name, content in contents.items()}


class Located:
    """Where the driver's files are for a computation: by default where the driver has them."""

    def __init__(self, sent: SentFiles | None = None) -> None:
        self.here = sent is None
        """Whether this is the driver's machine, so that its folders are at hand."""
        self._places: dict[str, Path] = {}
        if sent:
            self._folder = TemporaryDirectory(prefix=PREFIX)  # gone with this object
            write_folder(Path(self._folder.name), dict(sent.contents))
            self._places = {path: Path(self._folder.name, place) for path, place in sent.places}

    def path(self, path: Path) -> Path:
        """Return where a file is."""
        return self._places.get(str(path), path)

    def policy(self, policy: str) -> str:
        """Return the spec of a policy with its file as it is here."""
        path = policies.file_of(policy)
        if path is None or str(path) not in self._places:
            return policy
        return policy.replace(str(path), str(self.path(path)), 1)

    def scenario(self, scenario: Scenario) -> Scenario:
        """Return a scenario with its files as they are here."""
        changes: dict[str, Any] = {}
        for key in ("topology", "sources"):
            table = getattr(scenario, key)
            file = getattr(table, "file", None)
            if file in self._places:
                changes[key] = table.model_copy(update={"file": str(self._places[file])})
        return scenario.model_copy(update=changes) if changes else scenario

    @contextmanager
    def folder(self, folder: Path) -> Iterator[Path]:
        """Lend a folder to work in: the driver's own, or elsewhere a copy that nobody else has."""
        if self.here:
            yield folder
            return
        with TemporaryDirectory(prefix=PREFIX) as name:
            copy = Path(name, folder.name)
            if self.path(folder).is_dir():
                shutil.copytree(self.path(folder), copy)
            yield copy


@lru_cache(UNPACKED)
def _unpacked(sent: SentFiles) -> Located:
    return Located(sent)


def unpack(sent: SentFiles | None) -> Located:
    """Return where files are; those that were sent are written to a folder of this process once."""
    return Located() if sent is None else _unpacked(sent)


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder by their path in it, without hidden and incomplete ones."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".part"
    }


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files below a folder, in their order."""
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, content)
