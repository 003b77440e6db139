"""Files that hold secrets or are read by other processes: private, and whole or not there."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

OWNER_ONLY = 0o600
LARGEST_RECORD = 2**30
"""Bytes of a participant's record at most, where nothing better is known."""
LARGEST_CONFIG = 2**28
"""Bytes of a participant's configuration at most: that of sources holds a trace."""


def open_private(path: Path, mode: str = "w", **options: Any) -> IO[Any]:
    """Open a file for writing that only its owner may read; like `open`, "w" truncates it."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if "a" in mode else os.O_TRUNC)
    if "b" not in mode:
        options.setdefault("encoding", "utf-8")
    descriptor = os.open(path, flags, OWNER_ONLY)
    os.fchmod(descriptor, OWNER_ONLY)
    return os.fdopen(descriptor, mode, **options)


def write_private(path: Path, content: str | bytes) -> None:
    """Replace a private file at once: whoever reads it meanwhile gets the old or the new one."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open_private(part, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def give_to(user: int | None, folder: Path) -> None:
    """Make a user, if there is one, own a folder and all in it, but not what links lead to."""
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


def open_untrusted(path: Path) -> IO[bytes]:
    """Open for reading what another user may have put into a folder of its own, or raise OSError.

    The reader may be root, and the folder's owner hostile: a symbolic or hard link could lead to a
    file that only root may read, a FIFO or a device could block, and the kind of file could change
    between a check and the opening. So what was opened is checked, not what was named.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        descriptor = os.open(path.name, flags, dir_fd=folder)
        owners = {os.fstat(folder).st_uid, os.geteuid()}
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link", str(path)) from error
        raise
    finally:
        os.close(folder)
    found = os.fstat(descriptor)
    fault = None
    if not stat.S_ISREG(found.st_mode):
        fault = "is not a regular file"
    elif found.st_uid not in owners:
        fault = "belongs to somebody else"
    elif found.st_nlink > 1:
        fault = "has another name elsewhere (a hard link)"
    if fault:
        os.close(descriptor)
        raise OSError(errno.EINVAL, fault, str(path))
    return os.fdopen(descriptor, "rb")


def read_untrusted(path: Path, limit: int) -> bytes:
    """Read a whole file by `open_untrusted`; one of more than `limit` bytes is an OSError.

    The limit is on what is read: a file may grow meanwhile.
    """
    with open_untrusted(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"is larger than the {limit:,} bytes it can have", str(path))
    return content


def read_record_lines(path: Path, header: str, limit: int = LARGEST_RECORD) -> list[str]:
    """Return the lines of a participant's record after its header; ValueError if it has another."""
    first, *lines = read_untrusted(path, limit).decode().split("\n")
    if first != header:
        raise ValueError(f"{path.name} does not begin with {header!r}")
    if lines and not lines[-1]:
        lines.pop()  # what follows the last line's end
    return lines


def remove_untrusted(path: Path) -> None:
    """Remove a file from another user's folder; what cannot be removed stays."""
    with suppress(OSError):
        path.unlink()
