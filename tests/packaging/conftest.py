"""The wheel, built once for all tests, and the environments that it is installed into."""

from __future__ import annotations

from pathlib import Path

import pytest
from federated_support import once
from packaging_support import Environment, build_wheel, linked_environment, working_directory


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(once(tmp_path_factory, "wheel", lambda folder: str(build_wheel(folder))))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """The wheel with its dependencies, without any extra."""

    def make(folder: Path) -> str:
        return str(linked_environment(folder / "venv", wheel).folder)

    return Environment(Path(once(tmp_path_factory, "installed", make)))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working directory whose own modules are called like ours, and fail when imported."""
    return working_directory(tmp_path / "elsewhere")
