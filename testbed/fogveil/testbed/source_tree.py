"""The package's own files, wherever they are installed: for digests and for container images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from fogveil.agent.policy_files import candidates
from fogveil.core.python_imports import imported_modules, is_library

PORTIONS = (
    *("core", "protocol", "v1"),
    *("provider_node", "broker", "agent", "sources", "clock", "testbed", "gym", "api"),
)
"""The packages of the namespace `fogveil`; an editable install has no folder of them all."""
CODE = (".py", ".npz", ".txt", ".proto")


def source_files(portions: Iterable[str] = PORTIONS) -> dict[str, Path]:
    """Return the files of some portions, by their path relative to the folder of imports."""
    files = {}
    for portion in portions:
        spec = find_spec(f"fogveil.{portion}")  # without importing it: some load heavy libraries
        assert spec is not None
        assert spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0])
        for path in folder.rglob("*"):
            if path.suffix in CODE and path.parent.name != "__pycache__":
                files[f"fogveil/{portion}/{path.relative_to(folder).as_posix()}"] = path
    return files


@lru_cache
def code_digest(modules: frozenset[str]) -> str:
    """Return a digest of modules, of all that they import from the package, and of its data.

    A module that is imported by a computed name must be among the modules. The location of the
    package does not change the digest.
    """
    files = source_files()
    needed = {name for name in files if not name.endswith(".py")}
    outstanding = [name for module in modules for name in _files_of(module, files)]
    while outstanding:
        name = outstanding.pop()
        if name not in needed:
            needed.add(name)
            imported = imported_modules(files[name].read_bytes())
            outstanding += [file for module in imported for file in _files_of(module, files)]
    digest = hashlib.sha256()
    for name in sorted(needed):
        digest.update(f"{name} {hashlib.sha256(files[name].read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def search_path_files(modules: Iterable[str]) -> dict[str, Path]:
    """Return the user's own Python files that importing names executes, found as Python does.

    Those of the standard library, of installed packages and of this one are left out. Nothing is
    executed.
    """
    found: dict[str, Path] = {}
    outstanding = list(modules)
    while outstanding:
        module = outstanding.pop()
        for name in candidates(module):
            folder = _folder_of(module.partition(".")[0])
            if folder is None or name in found or not (folder / name).is_file():
                continue
            found[name] = folder / name
            package = name.rpartition("/")[0].replace("/", ".")
            with suppress(SyntaxError, ValueError, RecursionError):  # the run says what is wrong
                outstanding += imported_modules((folder / name).read_bytes(), package)
    return found


def _folder_of(top: str) -> Path | None:
    """Return where a user's own module or package lies; None if it is another's or not found."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    packages = list(spec.submodule_search_locations or ())
    place = packages[0] if packages else spec.origin
    return None if place is None or is_library(place) else Path(place).parent


def _files_of(module: str, files: dict[str, Path]) -> list[str]:
    """Return the files of the package that importing a name executes."""
    parts = module.split(".")
    packages = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    names = [f"{'/'.join(parts)}.py", *(f"{package}/__init__.py" for package in packages)]
    return [name for name in names if name in files]
