"""Going on as a user to whom nothing belongs but what was given to it."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

LATE = (
    *(
        "encodings.ascii",
        "encodings.cp437",
        "encodings.idna",
        "encodings.latin_1",
        "encodings.utf_8",
    ),
    *("concurrent.futures.thread", "linecache", "ssl", "tempfile", "traceback", "zipfile"),
)
"""What Python and its libraries load only when they need it."""


def become(user: int, folder: Path) -> None:
    """Go on as another user, in its folder: the way there, and to Python, may be closed to it."""
    for module in LATE:
        import_module(module)
    os.chdir(folder)
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
