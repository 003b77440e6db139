"""What a Python source imports, found out without running it."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})


def imported_modules(source: bytes, package: str = "") -> set[str]:
    """Return the names that a source imports anywhere in it: modules, and perhaps parts of them.

    `package` is the one that the source belongs to, from which relative imports count.

    >>> sorted(imported_modules(b"import a.b; from c import d; from . import e", package="p"))
    ['a.b', 'c', 'c.d', 'p', 'p.e']
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join(filter(None, (*parents, node.module)))
            if module:
                names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return names


def is_library(file: str) -> bool:
    """Return whether a file is part of the standard library or of an installed package."""
    path = Path(file)
    return path.is_relative_to(sysconfig.get_path("stdlib")) or not LIBRARY_FOLDERS.isdisjoint(
        path.parts
    )
