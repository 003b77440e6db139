"""Where a result comes from: commit, versions, command and date. No result depends on it."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fogveil.core.version import VERSION, source_commit

PACKAGES = ("numpy", "simpy", "networkx", "pyarrow")


def library_versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    return {
        "python": platform.python_version(),
        "fogveil": VERSION,  # not by its metadata, which an image's copy of the code lacks
        **{name: version(name) for name in PACKAGES},
    }


def provenance() -> dict[str, Any]:
    """Return what a result keeps of its origin.

    The command can hold secrets of the scenario (--set): it is for the experimenter's files alone.
    """
    commit = source_commit()
    return {
        "commit": commit and commit.removesuffix("-dirty"),
        "uncommitted_changes": commit and commit.endswith("-dirty"),
        "versions": library_versions(),
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _program() -> str:
    """Return the name of the command, also where it runs as a module."""
    path = Path(sys.argv[0])
    return "fogveil" if path.match("fogveil/testbed/cli/__main__.py") else path.name
