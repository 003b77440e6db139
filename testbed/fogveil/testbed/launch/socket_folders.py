"""The Unix sockets of a run: a folder for each participant that others dial.

A participant in a network of its own reaches others by nothing but sockets in folders that are
mounted into its root. On this machine they lie in one folder that only the launcher can enter.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fogveil.protocol.enclosure import SOCKETS

SOCKET = "socket"
LONGEST_ROOT = 70
"""Characters: the path of a socket has at most 107."""
REMOVE = 'read -r _; rm -rf -- "$1"'
"""Removes the folder when its standard input ends, hence also when the launcher is killed."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,59}", re.ASCII)
"""Names that need no escaping in an address, and are short enough; others become numbers."""


class SocketFolders:
    """Where the sockets are: on this machine, and as participants see them."""

    def __init__(self, names: Iterable[str]) -> None:
        parent = os.path.realpath(tempfile.gettempdir())
        if len(parent) > LONGEST_ROOT:
            parent = os.path.realpath("/tmp")  # noqa: S108 (mkdtemp's folder is private)
        self.root = Path(tempfile.mkdtemp(prefix="sockets-of-fogveil-", dir=parent))
        self._remover = subprocess.Popen(  # noqa: S603 (a constant program)
            ["/bin/sh", "-c", REMOVE, "sh", str(self.root)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._names: dict[str, str] = {}
        self._stand_ins: dict[tuple[str, str], Path] = {}
        """Folders that a caller finds in the place of a callee's, by (caller, callee)."""
        for number, name in enumerate(names):
            self._names[name] = name if PLAIN_NAME.fullmatch(name) else f"~{number}"
            (self.root / str(number)).mkdir()
            (self.root / str(number)).chmod(0o755)
        self._folders = {name: self.root / str(number) for number, name in enumerate(self._names)}

    def __contains__(self, name: str) -> bool:
        """Return whether a participant has a socket."""
        return name in self._names

    def own(self, name: str, user: int | None) -> tuple[str, str]:
        """Return where a participant creates its socket; see `Enclosure.own_socket`."""
        folder = self._folders[name]
        if user is not None:
            os.chown(folder, user, user)
        return str(folder), self._names[name]

    def dialled(self, caller: str, callees: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return the folders of those whom a participant dials; see `Enclosure.sockets`."""
        return tuple(
            (str(self._stand_ins.get((caller, name), self._folders[name])), self._names[name])
            for name in callees
        )

    def names_of(self, participants: Iterable[str]) -> list[str]:
        """Return the names of participants' folders below `SOCKETS`."""
        return [self._names[name] for name in participants]

    def inside(self, name: str) -> str:
        """Return the path of a participant's socket, as it and its callers see it."""
        return f"{SOCKETS}/{self._names[name]}/{SOCKET}"

    def outside(self, name: str) -> str:
        """Return the path of a participant's socket on this machine."""
        return str(self._folders[name] / SOCKET)

    def stand_in(self, caller: str, callee: str) -> str:
        """Return where to listen in the place of a callee, for a caller that has not started."""
        folder = self.root / f"for-{len(self._stand_ins)}"
        folder.mkdir()
        folder.chmod(0o755)
        self._stand_ins[caller, callee] = folder
        return str(folder / SOCKET)

    def remove(self) -> None:
        """Remove the sockets with all their folders."""
        assert self._remover.stdin is not None
        self._remover.stdin.close()
        self._remover.wait()
