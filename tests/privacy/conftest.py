"""Fixtures shared by the tests of the audit."""

from __future__ import annotations

import os
from textwrap import dedent

import pytest
from audit_support import tapped
from support import SCENARIOS

from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.privacy.audit.audited_run import AuditedRun, process_environments
from fogveil.testbed.privacy.audit.canaries import plant
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

collect_ignore_glob = ["breakages/*"]
"""They are challenges, no tests."""


@pytest.fixture
def sabotage(tmp_path, monkeypatch):
    """Return a function that makes every participant run some code when it starts."""

    def install(code: str) -> None:
        folder = tmp_path / "sabotage"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(dedent(code))
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        monkeypatch.setenv("PYTHONPATH", path)

    return install


@pytest.fixture
def run_testbed(tmp_path):
    """Return a function that runs a testbed, and something else before its agent starts.

    It returns the run for the audit's checks, and the result of `before_agent`.
    """

    def run(level="count", policy="jsq", before_agent=lambda testbed, world: None):
        overrides = {"horizon": 600, "disclosure": level, "seed": 5}
        scenario = load_scenario(SCENARIOS / "tiny.toml", overrides)
        world = build_world(plant(scenario, 7))
        plan = Plan(policies=(policy,), broker="builtin", record=True)
        with create_testbed(world, plan, tmp_path / "testbed", hold=True) as testbed:
            result = before_agent(testbed, world)
            testbed.release()
            audited = AuditedRun(world, plan, testbed.split, process_environments(testbed))
            testbed.wait()
            audited.logs = testbed.output
        return audited, result

    return run


@pytest.fixture
def audited_run(run_testbed):
    """Return a function that runs a testbed for the audit's checks."""
    return lambda level="count", policy="jsq": run_testbed(level, policy)[0]


@pytest.fixture(scope="session")
def honest(tmp_path_factory):
    """Return a recorded run of two episodes at level `count`."""
    evidence = tapped(tmp_path_factory.mktemp("count"), "count", "builtin", draws=(0, 1))
    users = {*evidence.host.users.values()}
    # Files of other programs would be searched again with every change below.
    evidence.host.left = [fact for fact in evidence.host.left if fact.user in users]
    return evidence


@pytest.fixture(scope="session")
def honest_total(tmp_path_factory):
    """Return a recorded run at level `total`."""
    return tapped(tmp_path_factory.mktemp("total"), "total", "mosquitto")
