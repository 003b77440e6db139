"""What a process may do: how many files it opens, and dropping root privileges.

A participant goes on as a user that owns nothing but its folder.

A user's code, and every library that it imports, is loaded after that: whoever imports as root
lets root run what it imports. Python's folders may be closed to the new user (an environment below
/root), so they stay open as file descriptors, through which the process still reads what everybody
may read in them, and nothing outside of them.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

OPEN_FILES = 2**16
"""Files and connections that a process may have open, where the system lets it choose."""


def raise_file_limit() -> None:
    """Let this process have many connections: an outsider can open some thousand idle ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def become_user(user: int, folder: Path) -> None:
    """Go on as another user, in its folder, with Python's libraries still importable."""
    opened = {entry: _open_folder(entry) for entry in _import_folders()}
    os.chdir(folder)
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    moved = {
        entry: f"/proc/self/fd/{descriptor}"
        for entry, descriptor in opened.items()
        if descriptor is not None and not os.access(entry, os.R_OK | os.X_OK)
    }
    for entry, descriptor in opened.items():
        if descriptor is not None and entry not in moved:
            os.close(descriptor)
    _redirect_imports(moved)


def _import_folders() -> list[str]:
    """Return where modules are imported from: sys.path, and packages that an installer maps."""
    folders = dict.fromkeys(sys.path)
    for module in list(sys.modules.values()):
        places = getattr(module, "__path__", None)
        for place in places if isinstance(places, list) else ():
            if not any(place.startswith(f"{folder}/") for folder in folders if folder):
                folders[place] = None
    return list(folders)


def _open_folder(entry: str) -> int | None:
    try:
        return os.open(entry, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None  # an archive, or not there


def _redirect_imports(moved: dict[str, str]) -> None:
    """Let imports, and submodules of what is imported already, be found in the moved folders."""
    if not moved:
        return

    def redirect(path: str) -> str:
        for entry, place in moved.items():
            if path == entry or path.startswith(f"{entry}/"):
                return place + path[len(entry) :]
        return path

    sys.path[:] = map(redirect, sys.path)
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):
        places = getattr(module, "__path__", None)
        if isinstance(places, list):
            places[:] = map(redirect, places)
