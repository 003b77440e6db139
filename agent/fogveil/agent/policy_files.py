"""The files of a user's policy: its own, and the Python files beside it that it imports.

They are found by reading the sources, never by running them, and loaded from memory. So a policy
imports the same files in every mode, and a change of one of them is noticed.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import NamedTuple

from fogveil.core.errors import InputError
from fogveil.core.python_imports import imported_modules

NEVER_BESIDE = frozenset({*sys.stdlib_module_names, "fogveil"})
"""Names that always mean the standard library's modules and our own."""


class PolicyFiles(NamedTuple):
    """The sources of a policy, read at one moment."""

    path: Path
    """The policy's own file."""
    contents: tuple[tuple[str, bytes], ...]
    """By path relative to its folder; the policy's own comes first."""

    @property
    def source(self) -> bytes:
        """The content of the policy's own file."""
        return self.contents[0][1]

    def write_to(self, folder: Path) -> None:
        """Write all of them to another folder."""
        for name, content in self.contents:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(content)

    def imports(self) -> set[str]:
        """Return the names that any of them imports."""
        found = (_imports(source, _package(name)) for name, source in self.contents)
        return set().union(*found)


def read_policy_files(path: Path) -> PolicyFiles:
    """Read a policy's file and the Python files below its folder that it imports, all the way."""
    contents = {path.name: _read(path)}
    outstanding = [path.name]
    while outstanding:
        name = outstanding.pop()
        for module in sorted(_imports(contents[name], _package(name))):
            for candidate in candidates(module):
                beside = path.parent / candidate
                if candidate not in contents and beside.is_file() and _is_python(beside):
                    contents[candidate] = _read(beside)
                    outstanding.append(candidate)
    return PolicyFiles(path, tuple(contents.items()))


def candidates(module: str) -> list[str]:
    """Return the files that importing a name may execute, relative to where it is found.

    >>> candidates("a.b")
    ['a.py', 'a/__init__.py', 'a/b.py', 'a/b/__init__.py']
    """
    parts = module.split(".")
    if parts[0] in NEVER_BESIDE:
        return []
    stems = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return [file for stem in stems for file in (f"{stem}.py", f"{stem}/__init__.py")]


def _is_python(path: Path) -> bool:
    """Return whether a file is Python's by its real name, too: a link may lead anywhere."""
    return path.resolve().suffix == ".py"


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(f"policy file {path} does not exist")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"policy file {path} cannot be read: {error.strerror}") from error


def _imports(source: bytes, package: str) -> set[str]:
    try:
        return imported_modules(source, package)
    except (SyntaxError, ValueError, RecursionError):  # loading it says what is wrong
        return set()


def _module_name(name: str) -> str:
    """Return the module of a file.

    >>> _module_name("a/b.py"), _module_name("a/__init__.py")
    ('a.b', 'a')
    """
    parts = PurePosixPath(name).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package(name: str) -> str:
    """Return the package that a file's relative imports start from."""
    return ".".join(PurePosixPath(name).parent.parts)


class _Beside(MetaPathFinder, SourceLoader):  # type: ignore[misc]  # (typeshed's own fault)
    """Imports the modules beside a policy, from memory: nothing is cached, so nothing is stale."""

    def __init__(self, files: PolicyFiles) -> None:
        self.folder = files.path.parent
        self._sources = {str(self.folder / name): source for name, source in files.contents}
        self._files = {_module_name(name): str(self.folder / name) for name, _ in files.contents}
        self._packages = {
            ".".join(parent.parts): str(self.folder / parent / "__init__.py")
            for name, _ in files.contents
            for parent in PurePosixPath(name).parents
            if parent.parts
        }

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, if it is one of the files."""
        package = name in self._packages
        file = self._packages[name] if package else self._files.get(name)
        if file is None:
            return None
        inside = [str(Path(file).parent)] if package else None
        return spec_from_file_location(name, file, loader=self, submodule_search_locations=inside)

    def get_filename(self, name: str) -> str:
        """Return the file of a module."""
        return self._packages.get(name) or self._files[name]

    def get_data(self, path: str) -> bytes:
        """Return a file's content; a folder without `__init__.py` is a package, too."""
        return self._sources.get(path, b"")


def load_policy_module(files: PolicyFiles) -> ModuleType:
    """Run a policy's file and return its module; whatever this raises is the policy's error.

    From here on the files of an earlier policy cannot be imported: two may use the same names.
    """
    for finder in [each for each in sys.meta_path if isinstance(each, _Beside)]:
        sys.meta_path.remove(finder)
    for name, module in list(sys.modules.items()):
        if isinstance(getattr(module, "__loader__", None), _Beside):
            del sys.modules[name]
    sys.meta_path.insert(0, _Beside(files))
    for name, source in files.contents:  # so that errors can show lines of what runs
        file = str(files.path.parent / name)
        lines = source.decode("utf-8", "replace").splitlines(keepends=True)
        linecache.cache[file] = (len(source), None, lines, file)
    module = ModuleType(f"_policy_{files.path.stem}")
    module.__file__ = str(files.path)
    code = compile(files.source, str(files.path), "exec")
    exec(code, module.__dict__)  # noqa: S102 (a policy is code)
    return module


def file_within_policy(file: str) -> str | None:
    """Return a file's path below the folder of the policy that is loaded; None if elsewhere."""
    for finder in sys.meta_path:
        if isinstance(finder, _Beside) and Path(file).is_relative_to(finder.folder):
            return Path(file).relative_to(finder.folder).as_posix()
    return None
