"""What the tests of the package share: the built wheel, and environments that hold little else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import ROOT

PORTIONS = ("proto", "provider_node", "broker", "agent", "testbed")
"""The folders that each hold a portion of the namespace package `fogveil`."""
LIMIT = 300.0
"""Seconds after which a command of these tests has failed, on a machine with much else to do."""
RAISE = 'raise AssertionError(f"fogveil imported {__name__} of the working directory")\n'
DECOYS = (
    *("agent.py", "broker.py", "clock.py", "core.py", "policy.py", "provider_node.py"),
    *("proto/__init__.py", "sources/__init__.py", "testbed/__init__.py", "testbed/cli.py"),
)
"""Modules that a user may have, under the names of ours."""


def source_files() -> set[str]:
    """Return what the wheel should hold, relative to the folder of imports."""
    files = set()
    for portion in PORTIONS:
        for folder, _, names in os.walk(ROOT / portion / "fogveil", followlinks=True):
            relative = Path(folder).relative_to(ROOT / portion)
            if relative.name != "__pycache__":
                files |= {(relative / name).as_posix() for name in names}
    return files


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the sources: leftovers in the checkout's `build/` stay out."""
    copy_sources(folder / "sources")
    return pip_wheel(folder / "sources", folder)


def copy_sources(folder: Path) -> None:
    """Copy what a wheel is built from."""
    skip = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")
    for name in (*PORTIONS, "scenarios"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=skip)
    for name in ("pyproject.toml", "constraints.txt", "Dockerfile", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)


def pip_wheel(source: Path, folder: Path) -> Path:
    """Build a wheel of a folder or an sdist, with the setuptools of this environment."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    check_call(sys.executable, "-m", "pip", "wheel", *options, str(source))
    (wheel,) = folder.glob("fogveil-*.whl")
    return wheel


def build_sdist(source: Path, folder: Path) -> Path:
    """Build the source archive."""
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    check_call(sys.executable, "-c", code, cwd=source)
    (archive,) = folder.glob("fogveil-*.tar.gz")
    return archive


def check_call(*command: str, cwd: Path | None = None) -> None:
    """Run a command to its end, which has to be a good one."""
    done = subprocess.run(
        command, cwd=cwd, env=outside(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def outside() -> dict[str, str]:
    """Return the variables of a shell that knows nothing of this checkout."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {key: value for key, value in os.environ.items() if key not in hidden}


class Environment:
    """A virtual environment, and commands that run in it as a user runs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")

    def run(
        self, *command: str, cwd: Path, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment to its end."""
        active = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        shown = {"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"}
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            cwd=cwd,
            env={**outside(), **active, **shown, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        if check:
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done

    @property
    def packages(self) -> Path:
        """Where its libraries are."""
        (found,) = self.folder.glob("lib/python3.*/site-packages")
        return found

    def install(self, *what: str) -> None:
        """Install with the pip of the tests' environment, so that this one needs none."""
        options = ("--quiet", "--disable-pip-version-check", "--no-warn-script-location")
        check_call(sys.executable, "-m", "pip", "--python", self.python, "install", *options, *what)


def linked_environment(folder: Path, wheel: Path, extras: Iterable[str] = ()) -> Environment:
    """Make an environment of the wheel and its dependencies, and of nothing else.

    The dependencies are links into the environment of the tests, so that this takes seconds; what
    only the tests need is not there.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    environment = Environment(folder)
    environment.install("--no-deps", "--no-index", str(wheel))
    (installed,) = metadata.distributions(name="fogveil", path=[str(environment.packages)])
    for distribution in dependencies(installed, extras):
        _link(distribution, environment.packages)
    return environment


def dependencies(root: metadata.Distribution, extras: Iterable[str]) -> list[metadata.Distribution]:
    """Return all that a distribution with some extras depends on, directly and indirectly."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [(root, frozenset(extras))]
    done = set()
    while waiting:
        distribution, wanted = waiting.pop()
        for text in distribution.requires or ():
            requirement = Requirement(text)
            key = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if key in done or not _applies(requirement, wanted):
                continue
            done.add(key)
            found[key[0]] = metadata.distribution(key[0])
            waiting.append((found[key[0]], key[1]))
    return list(found.values())


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _link(distribution: metadata.Distribution, packages: Path) -> None:
    """Link to a distribution's files; folders that it shares with others are made anew."""
    root = Path(str(distribution.locate_file("")))
    for file in distribution.files or ():
        if file.parts[0] == ".." or "__pycache__" in file.parts:
            continue
        shared = file.parts[0] in SHARED
        target = packages / (file if shared else file.parts[0])
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            # A package that is linked as a whole can be seen by enclosed participants, too.
            link = target.hardlink_to if shared else target.symlink_to
            link(root / (file if shared else file.parts[0]))


def _shared() -> set[str]:
    """Return the folders into which several distributions of this environment install."""
    owners: dict[str, set[str]] = {}
    for distribution in metadata.distributions():
        name = distribution.name  # parsed anew at each look
        for file in distribution.files or ():
            if len(file.parts) > 1:
                owners.setdefault(file.parts[0], set()).add(name)
    return {name for name, several in owners.items() if len(several) > 1}


SHARED = _shared()


def fresh_environment(version: str, folder: Path, *requirements: str) -> Environment:
    """Install requirements and their dependencies from the registry, as a user does."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} with venv on this machine: install it to test there")
    check_call(python, "-m", "venv", str(folder))
    environment = Environment(folder)
    environment.run(
        *("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--constraint", str(ROOT / "constraints.txt"), *requirements),
        cwd=folder,
    )
    return environment


def find_python(version: str) -> str | None:
    """Return an interpreter of a version, if the machine has one."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    candidates: list[Any] = [sys.executable, shutil.which(f"python{version}")]
    candidates += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in filter(None, candidates):  # a shim of pyenv may be there without its Python
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return str(path)
    return None


def working_directory(folder: Path) -> Path:
    """Make a folder in which every import that is not ours fails."""
    for name in DECOYS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RAISE, encoding="utf-8")
    return folder
