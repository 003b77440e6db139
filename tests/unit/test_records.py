"""Records: what the two tables hold, who may read them, and what a failure leaves behind."""

from __future__ import annotations

import json
import stat
import subprocess
import sys

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from support import ROOT, SCENARIOS, make_run, make_world

import fogveil.agent.policies as policies
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.records.join import COLUMNS
from fogveil.testbed.records.output import write_json
from fogveil.testbed.records.run_records import RunRecords
from fogveil.testbed.records.summary import DELAYS, LOOPS, TAILS
from fogveil.testbed.scenario import load_scenario


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records") / "run"
    scenario = load_scenario(SCENARIOS / "stress.toml", {"disclosure": "full", "horizon": 40_000})
    return folder, run_embedded(scenario, "jsq", folder)


def test_jobs_table(recorded):
    folder, result = recorded
    table = pq.read_table(folder / "jobs.parquet")
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == result["summary"]["workloads"] > 4096
    row = table.slice(0, 1).to_pylist()[0]
    assert row["cluster"].startswith("cluster-")
    assert row["node"].startswith("fog-")
    assert row["category"] in ("light", "moderate", "demanding")
    share = table["cloud_finished"].null_count / table.num_rows
    assert 0.87 < share < 0.93
    assert table["cloud_finished"].null_count < table["cloud_returned"].null_count


def test_decisions_table_has_the_counts_that_the_policy_observed(recorded):
    folder, _ = recorded
    table = pq.read_table(folder / "decisions.parquet")
    assert table.column_names == ["job", "time", "node", "queued", "total_queued", "attempt"]
    jobs = pq.read_table(folder / "jobs.parquet")
    assert table["job"].equals(jobs["job"])
    assert table["time"].equals(jobs["emitted"])
    queued = table["queued"].to_pylist()
    assert all(len(counts) == 11 and counts[10] is None for counts in queued)
    sums = [sum(counts[:10]) for counts in queued]
    assert table["total_queued"].to_pylist() == sums
    assert max(sums) > 0
    assert table.schema.metadata[b"queued"].decode().split(",")[-2:] == ["fog-10", "cloud"]


def test_what_a_policy_did_not_observe_is_null(tmp_path):
    scenario = load_scenario(SCENARIOS / "tiny.toml")
    run_embedded(scenario, "round-robin", tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "decisions.parquet")
    assert table["queued"].null_count == table["total_queued"].null_count == table.num_rows


def test_summary_equals_the_means_of_the_record(recorded):
    folder, result = recorded
    expected = (
        duckdb.sql(
            f"""select count(*) as workloads, count(*) filter (finished > 40000) as unserved,
            avg(arrived - emitted) as latency, avg(started - arrived) as waiting,
            avg(finished - started) as service, avg(finished - arrived) as response,
            avg(finished - emitted) as total_response, avg(returned - emitted) as fog_loop,
            avg(cloud_returned - emitted) as cloud_loop
            from '{folder}/jobs.parquet'"""
        )
        .fetchdf()
        .iloc[0]
    )
    for name, value in expected.items():
        assert result["summary"][name] == pytest.approx(value, rel=1e-12), name
    jobs = pq.read_table(folder / "jobs.parquet").to_pandas()
    for node, used in result["summary"]["utilisation"].items():
        prefix = "cloud_" if node == "cloud" else ""
        here = jobs if node == "cloud" else jobs[jobs["node"] == node]
        busy = here[f"{prefix}finished"].clip(upper=40000) - here[f"{prefix}started"].clip(
            upper=40000
        )
        assert used == pytest.approx(busy.sum() / 40000)
    assert np.sum(result["summary"]["placed"]) == len(jobs)


def test_percentiles_are_those_of_the_record(recorded):
    folder, result = recorded
    columns = [
        f"quantile_cont({end} - {begin}, {percentile / 100}) as {name}_p{percentile}"
        for name, (begin, end) in (DELAYS | LOOPS).items()
        for percentile in (50, 90, 95, 99)
    ]
    query = f"select {', '.join(columns)} from '{folder}/jobs.parquet'"
    expected = duckdb.sql(query).fetchdf().iloc[0]
    assert set(expected.keys()) == set(TAILS)
    for name, value in expected.items():
        assert result["summary"][name] == pytest.approx(value, rel=1e-9), name


def test_fairness_and_mean_utilisation(recorded):
    folder, result = recorded
    jobs = pq.read_table(folder / "jobs.parquet").to_pandas()
    delays = (jobs["returned"] - jobs["emitted"]).groupby(jobs["cluster"], observed=True).mean()
    assert len(delays) == 8
    jain = delays.sum() ** 2 / (8 * (delays**2).sum())
    assert result["summary"]["fairness"] == pytest.approx(jain)
    assert 1 / 8 < jain < 1
    used = [value for node, value in result["summary"]["utilisation"].items() if node != "cloud"]
    assert result["summary"]["utilisation_mean"] == pytest.approx(np.mean(used))


def test_deadlines_are_judged_by_application_and_change_nothing_else(recorded):
    folder, result = recorded
    kinds = {"light": 40.0, "moderate": 100.0, "demanding": None}
    plain = load_scenario(SCENARIOS / "stress.toml", {"disclosure": "full", "horizon": 40_000})
    applications = [{**app.model_dump(), "deadline": kinds[app.name]} for app in plain.applications]
    overrides = {"disclosure": "full", "horizon": 40_000, "applications": applications}
    summary = (again := run_embedded(load_scenario(SCENARIOS / "stress.toml", overrides), "jsq"))[
        "summary"
    ]
    assert again["run_hash"] == result["run_hash"]
    jobs = pq.read_table(folder / "jobs.parquet").to_pandas()
    jobs["met"] = jobs["returned"] - jobs["emitted"] <= jobs["category"].astype(str).map(kinds)
    shares = {name: jobs[jobs["category"] == name]["met"].mean() for name in ("light", "moderate")}
    assert summary["deadline_met_by_application"] == pytest.approx({**shares, "demanding": None})
    judged = jobs[jobs["category"] != "demanding"]
    assert summary["deadline_met"] == pytest.approx(judged["met"].mean())
    assert 0 < shares["light"] < 1
    assert result["summary"]["deadline_met"] is None
    assert set(result["summary"]["deadline_met_by_application"].values()) == {None}


def test_run_json_suffices_to_repeat_the_run(recorded):
    folder, result = recorded
    kept = json.loads((folder / "run.json").read_text())
    assert kept == json.loads(json.dumps(result))
    again = make_run("jsq", "stress", horizon=40_000)
    assert kept["run_hash"] == again.hash
    assert kept["scenario"]["topology"]["nodes"] == 100


def test_records_belong_to_the_evaluator(recorded):
    folder, _ = recorded
    names = {path.name for path in folder.iterdir()}
    assert names == {"jobs.parquet", "decisions.parquet", "run.json"}
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


class Fails(policies.find("jsq")):
    def place(self, seen):
        if seen.time > 1000:
            raise RuntimeError("no idea")
        return 0


def test_a_failed_run_leaves_nothing_behind(tmp_path):
    world = make_world()
    folder = tmp_path / "run"
    with (
        pytest.raises(InputError, match="policy Fails failed at time 1.*RuntimeError: no idea"),
        RunRecords(folder, world) as records,
    ):
        simulate(world, Fails(world.agent), [records])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_leaves_an_earlier_one_alone(tmp_path):
    run_embedded(load_scenario(SCENARIOS / "tiny.toml"), "jsq", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    world = make_world()
    with pytest.raises(InputError), RunRecords(tmp_path, world) as records:
        simulate(world, Fails(world.agent), [records])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_is_one_sentence_and_leaves_nothing():
    """A limit on the size of files refuses to write on, as a full disk does."""
    script = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.argv = ["fogveil", "run", "scenarios/stress.toml", "--policy", "jsq", "--out", sys.argv[1]]
from fogveil.testbed.cli import main
main()
"""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as top:
        done = subprocess.run(
            [sys.executable, "-c", script, f"{top}/run"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "cannot be written: " in done.stderr
        assert "Traceback" not in done.stderr
        assert list(Path(top).iterdir()) == []


def test_json_is_whole_or_not_there(tmp_path):
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="cannot be written: No such file"):
        write_json(tmp_path / "no" / "x.json", {})


def test_memory_does_not_grow_with_the_horizon(tmp_path):
    script = (
        "import sys, resource; from pathlib import Path\n"
        "from fogveil.testbed.engine.run import run_embedded\n"
        "from fogveil.testbed.scenario import load_scenario\n"
        "scenario = load_scenario(Path('scenarios/stress.toml'), {'horizon': float(sys.argv[1])})\n"
        "run_embedded(scenario, 'jsq', Path(sys.argv[2]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    used = [
        float(
            subprocess.run(
                [sys.executable, "-c", script, str(horizon), str(tmp_path / str(horizon))],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for horizon in (100_000, 1_000_000)
    ]
    # 108,000 more rows of 13 columns would be well over 10 MB if they were kept; of each row the
    # summary keeps four numbers, for exact percentiles, and needs a fifth while it computes them.
    assert used[1] - used[0] < 6, used
