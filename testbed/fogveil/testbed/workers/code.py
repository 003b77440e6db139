"""What a result depends on beside its scenario: the code, Python, and the numerical libraries."""

from __future__ import annotations

import hashlib
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from fogveil.testbed.source_tree import source_files

LIBRARIES = ("numpy", "simpy", "networkx", "torch")
SHOWN = 12
"""Characters of a digest that are enough to tell two apart."""


@lru_cache
def installed_code() -> str:
    """Return a digest of the installed package and of what its results depend on."""
    digest = hashlib.sha256(platform.python_version().encode())
    digest.update(platform.machine().encode())
    for library in LIBRARIES:
        digest.update(f"{library} {_version(library)}\n".encode())
    for name, path in sorted(source_files().items()):
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:SHOWN]


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
