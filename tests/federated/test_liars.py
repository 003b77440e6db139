"""Participants that lie in a real run: it ends with a sentence that names the liar."""

from __future__ import annotations

import pytest
from federated_support import fogveil, make_scenario, sabotage_participant
from support import SCENARIOS

from fogveil.core.errors import InfrastructureError
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan

LIES = {
    # The first version crashed with a traceback.
    "a count beyond every limit": (
        "fog-2",
        """
        from fogveil.provider_node.provider import Provider
        Provider.count = property(lambda self: 2**32 - 1)
        """,
        r"^fog-2 disclosed 4294967295 queued jobs at time \S+, when \d .*\(reported by agent\)$",
    ),
    # The first version joined the records and gave a run hash.
    "a small count": (
        "fog-2",
        """
        from fogveil.provider_node.provider import Provider
        Provider.count = property(lambda self: 0)
        """,
        r"fog-2 disclosed, or the agent recorded, 0 queued jobs at the decision on job \d+, ",
    ),
    # In the first version sources-1 was blamed, for workloads that the agent had dropped.
    "another's job ids": (
        "sources-2",
        """
        import fogveil.sources.process as process
        honest = process.emissions
        process.emissions = lambda *a: ((t, j - 2, c, k) for t, j, c, k in honest(*a))
        """,
        r"^sources-2 sent the agent workload \d+, but the next job of its cluster and category has",
    ),
    "another's clusters": (
        "sources-2",
        """
        import fogveil.sources.process as process
        honest = process.emissions
        process.emissions = lambda *a: ((t, j - 2, c - 1, k) for t, j, c, k in honest(*a))
        """,
        r"^sources-2 sent the agent workload \d+, but its cluster 0 belongs to sources-1 ",
    ),
    # In the first version the agent took whatever times it was sent.
    "other times to the agent than to the clock": (
        "sources-2",
        """
        import fogveil.sources.process as process
        honest = process.Workload
        process.Workload = lambda emitted, **rest: honest(emitted=emitted + 0.5, **rest)
        """,
        r"^sources-2 told the agent other emission times than the clock, in the window ",
    ),
    # In the first version forged results and aggregates ended the run, and nobody was named.
    "the result of a job that nobody emitted": (
        "fog-1",
        """
        import fogveil.provider_node.core as core
        honest = core.Result
        core.Result = lambda job, finished: honest(job=job + 10**6, finished=finished)
        """,
        r"^fog-1 sent the result of job 1\d{6}, which sources-\d never emitted: fog-1 invented it",
    ),
    "a result before its job": (
        "cloud",
        """
        import fogveil.provider_node.core as core
        honest = core.Result
        core.Result = lambda job, finished: honest(job=job, finished=0.0)
        """,
        r"^cloud says that job \d+ was finished at 0\.0, but it was emitted at \S+ \(reported by s",
    ),
    "aggregates of one job": (
        "fog-1",
        """
        import fogveil.provider_node.core as core
        honest = core.Placement
        core.Placement = lambda job, **rest: honest(job=7, **rest)
        """,
        r"^fog-1 sent job 7 to cloud, but had sent it before \(reported by cloud\)$",
    ),
    "jobs of another category": (
        "agent",
        """
        import fogveil.agent.core as core
        honest = core.Placement
        core.Placement = lambda category, **rest: honest(category=1 - category, **rest)
        """,
        r"recorded that job \d+ is of category \d, which is \d: fog-\d recorded, or the agent sent",
    ),
    "a forged record": (
        "agent",
        """
        from fogveil.agent.decision_record import DecisionRecord
        honest = DecisionRecord.add
        DecisionRecord.add = lambda self, made: honest(self, made._replace(emitted=-13.6))
        """,
        r"the agent's record says that job \d+ was emitted at -13\.6; sources-\d recorded ",
    ),
    # In the first version the launcher waited for ever.
    "a FIFO for a record": (
        "fog-1",
        """
        import os
        from fogveil.provider_node.journal import Journal, journal_path
        from pathlib import Path
        close = Journal.close
        def replace(self):
            close(self)
            os.unlink("journal-0000.csv")
            os.mkfifo("journal-0000.csv")
        Journal.close = replace
        """,
        r"^the record of fog-1 in episode 0 is no record: journal-0000\.csv is not a regular file$",
    ),
}
SLOW = {
    *("a small count", "another's clusters", "other times to the agent than to the clock"),
    *("a result before its job", "jobs of another category"),
}
"""Others go the same way."""


@pytest.fixture
def sabotage(tmp_path, monkeypatch):
    """Return a function that makes one participant run some code when it starts."""

    return lambda name, code: sabotage_participant(tmp_path, monkeypatch, name, code)


@pytest.mark.parametrize(
    "lie", [pytest.param(lie, marks=[pytest.mark.slow] * (lie in SLOW)) for lie in LIES]
)
def test_a_liar_is_named(tmp_path, sabotage, lie):
    name, code, sentence = LIES[lie]
    sabotage(name, code)
    scenario = make_scenario(horizon=500, loops__to_cloud=0.5)
    plan = Plan(("jsq",), broker="builtin", source_processes=2)
    with pytest.raises(InfrastructureError, match=sentence) as error:
        run_federated(scenario, plan, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert "Traceback" not in (tmp_path / "out" / "testbed.log").read_text()
    assert not (tmp_path / "out" / "run.json").exists(), "no result"


@pytest.mark.parametrize("level", ["count", pytest.param("total", marks=pytest.mark.slow)])
def test_the_command_ends_with_code_3(tmp_path, sabotage, level):
    code = "from fogveil.provider_node.provider import Provider\n"
    sabotage("cloud", f"{code}Provider.count = property(lambda self: 2**31)")
    own = f"{SCENARIOS.parent}/tests/federated/own_policies.py"
    policy = f"{own}:{'SeesCloud' if level == 'count' else 'SeesTotal'}"
    options = ("--policy", policy, "--broker", "builtin", "--disclosure", level)
    done = fogveil("run", SCENARIOS / "tiny.toml", "--federated", *options, "--horizon", 300)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    expected = "cloud disclosed 2147483648" if level == "count" else "add up to 2147483648 queued"
    assert expected in done.stderr
