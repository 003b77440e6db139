"""One engine for all tests that need one, and a check after each of them: nothing may be left."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker_engine import engine
from docker_support import TINY, build_wheel, fogveil


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need an engine; the others run with the rest of the suite."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "engine_environment" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session")
def engine_environment() -> Iterator[dict[str, str]]:
    """The environment in which the engine is found; where there is none the tests fail."""
    with engine() as environment:
        before = dict(os.environ)
        os.environ.update(environment)
        yield environment
        os.environ.clear()
        os.environ.update(before)


def resources(client: docker.DockerClient) -> set[tuple[str, str]]:
    """Return all containers, networks and volumes that there are."""
    return {
        *(("container", each.id) for each in client.containers.list(all=True)),
        *(("network", each.id) for each in client.networks.list()),
        *(("volume", each.id) for each in client.volumes.list()),
    }


@pytest.fixture
def client(engine_environment: dict[str, str]) -> Iterator[docker.DockerClient]:
    """A connection to the engine; a test that leaves something behind fails."""
    connection = docker.from_env()
    before = resources(connection)
    yield connection
    left = resources(connection) - before
    connection.close()
    assert not left


@pytest.fixture(scope="session")
def built(engine_environment: dict[str, str]) -> None:
    """The images, built before anything is timed."""
    done = fogveil("run", TINY, "--policy", "random", "--docker", "--horizon", "50")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel installs it, in a folder to put on PYTHONPATH."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(folder / "site-packages")
    return folder / "site-packages"
