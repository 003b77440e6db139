"""The version of fogveil, and the commit of its source tree."""

from __future__ import annotations

from functools import cache
from pathlib import Path

VERSION = "0.1.0"


@cache
def source_commit() -> str | None:
    """Return the commit of the source tree, with "-dirty" if files have changed; else None.

    An installed copy has none, also where it lies within somebody's own repository.
    """
    import subprocess  # no participant of a run needs it

    file = Path(__file__)
    git = ("git", "--no-optional-locks", "-C", str(file.parent))
    tracked = ("ls-files", "--error-unmatch", file.name)
    describe = ("describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
    try:
        for words in (tracked, describe):
            done = subprocess.run([*git, *words], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
