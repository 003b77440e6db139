"""One engine for all tests in containers, and a look around after each: nothing may be left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker_engine import engine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session")
def surroundings() -> Iterator[dict[str, str]]:
    """The environment in which the engine is found; where there is none the tests fail with why."""
    with engine() as found:
        before = dict(os.environ)
        os.environ.update(found)
        yield found
        os.environ.clear()
        os.environ.update(before)


def things(client: docker.DockerClient) -> set[tuple[str, str]]:
    """Return all containers, networks and volumes that there are."""
    return {
        *(("container", each.id) for each in client.containers.list(all=True)),
        *(("network", each.id) for each in client.networks.list()),
        *(("volume", each.id) for each in client.volumes.list()),
    }


@pytest.fixture
def client(surroundings: dict[str, str]) -> Iterator[docker.DockerClient]:
    """Talk with the engine; what a test leaves behind makes it fail."""
    speaking = docker.from_env()
    before = things(speaking)
    yield speaking
    left = things(speaking) - before
    speaking.close()
    assert not left
