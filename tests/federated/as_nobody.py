"""Run a command as `nobody`: python as_nobody.py COMMAND ARGUMENTS, as root in a mount namespace.

What Python needs may lie below a folder that only root can enter; that folder is then covered, in
this mount namespace alone, by one that shows nothing but what is needed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fogveil.protocol import linux_calls as linux

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]


def open_to_everybody(needed: list[Path]) -> None:
    """Make folders readable to everybody whose parents are closed."""
    closed = {path: closed_parent(path) for path in needed}
    opened = {path: os.open(path, os.O_PATH) for path, parent in closed.items() if parent}
    for parent in {parent for parent in closed.values() if parent}:
        linux.mount("tmpfs", str(parent), "tmpfs", options="mode=755")
    for path, descriptor in opened.items():
        path.mkdir(parents=True, exist_ok=True)
        source = f"/proc/self/fd/{descriptor}"
        linux.mount(source, str(path), flags=linux.MS_BIND | linux.MS_REC)


def closed_parent(path: Path) -> Path | None:
    """Return the first folder on the way to a path that others cannot enter."""
    for parent in (*reversed(path.parents), path):
        if not parent.stat().st_mode & 0o001:
            return parent
    return None


if __name__ == "__main__":
    open_to_everybody([Path(sys.base_prefix), Path(sys.prefix), ROOT])
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.execv(sys.argv[1], sys.argv[1:])
