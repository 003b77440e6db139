"""The wheel: what it holds, and that it works where nothing of a checkout is."""

from __future__ import annotations

import zipfile

import pytest
from installation import TASKS
from packaging_support import (
    build_sdist,
    copy_sources,
    fresh_environment,
    pip_wheel,
    source_files,
)


def names_in(wheel) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel):
    names = names_in(wheel)
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == source_files()
    assert not [name for name in names if "test_" in name or "conftest" in name]


@pytest.mark.parametrize(
    "name",
    [
        "fogveil/agent/trained/parl.npz",
        "fogveil/agent/trained/veil-waiting.npz",
        "fogveil/testbed/privacy/audit/boundary.txt",
        "fogveil/testbed/scenario/shipped/paper.toml",
        "fogveil/testbed/scenario/shipped/other/geant.toml",
        "fogveil/testbed/scenario/shipped/change/day.toml",
        "fogveil/testbed/scenario/shipped/league/park.toml",
        "fogveil/testbed/experiments/league.json",
        "fogveil/v1/boundary.proto",
    ],
)
def test_the_wheel_holds_data(wheel, name):
    assert name in names_in(wheel)


def test_the_wheel_claims_one_import_name(wheel):
    tops = {name.partition("/")[0] for name in names_in(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fogveil"}
    # A namespace package (PEP 420) has no `__init__.py`, so that no folder owns it.
    assert "fogveil/__init__.py" not in names_in(wheel)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_an_installed_fogveil_works_beside_modules_called_like_its_own(task, installed, elsewhere):
    task(installed, elsewhere)


@pytest.mark.slow
def test_a_wheel_by_way_of_an_sdist_is_the_same(wheel, tmp_path):
    copy_sources(tmp_path / "sources")
    archive = build_sdist(tmp_path / "sources", tmp_path)
    assert names_in(pip_wheel(archive, tmp_path / "wheels")) == names_in(wheel)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_a_fresh_installation_from_the_registry_works(version, wheel, elsewhere, tmp_path):
    environment = fresh_environment(version, tmp_path / "venv", str(wheel))
    for task in TASKS:
        task(environment, elsewhere)
