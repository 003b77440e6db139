"""Sweeps: every key, resumable cells, tidy tables, and figures of any column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from federated_support import fogveil as command
from support import ROOT

import fogveil.api as fogveil
from fogveil.testbed.experiments.sweep.definition import read_sweep
from fogveil.testbed.experiments.sweep.plan import SweepPlan
from fogveil.testbed.report.sweep_figure import series

SMALL = {
    "scenario": "tiny",
    "policies": ["jsq", "setr"],
    "seeds": 2,
    "set": {"horizon": 300.0},
    "grid": {"rate": [60.0, 90.0], "applications.light.instructions": [1000.0, 2000.0]},
}


def test_a_row_per_run_with_every_key(tmp_path):
    table = fogveil.sweep(SMALL, out=tmp_path).to_pandas()
    assert len(table) == 2 * 2 * 2 * 2
    assert set(table["seeds"]) == {2}
    for row in table.to_dict("records"):
        scenario = fogveil.Scenario.load("tiny").replace(
            {
                "horizon": 300.0,
                "rate": row["rate"],
                "applications.light.instructions": row["applications.light.instructions"],
                "disclosure": row["level"],
            }
        )
        run = fogveil.run(scenario, row["policy"], seed=row["seed"])
        assert run.run_hash == row["run_hash"]
        assert run.summary["fog_loop"] == row["fog_loop"]
        assert row["applications.0.instructions"] == row["applications.light.instructions"]
        assert (row["horizon"], row["fog.count"], row["sources.scale"]) == (300, 3, row["rate"])
    assert {"version.numpy", "commit", "unserved", "fog_loop_p95"} <= set(table.columns)
    written = pq.read_table(tmp_path / "results.parquet")
    assert written.num_rows == pyarrow.csv.read_csv(tmp_path / "results.csv").num_rows == 16


def test_finished_cells_are_not_repeated_and_other_results_not_replaced(tmp_path):
    fogveil.sweep(SMALL, out=tmp_path)
    plan = SweepPlan(read_sweep(SMALL), tmp_path)
    assert plan.find_outstanding().seconds == 0
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    next(iter(kept)).unlink()
    assert sum(map(len, plan.find_outstanding())) == 1
    fogveil.sweep(SMALL, out=tmp_path)
    now = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert sum(kept[path] != now[path] for path in kept) == 1
    other = {**SMALL, "seeds": 1}
    with pytest.raises(fogveil.InputError, match="holds other results; choose another --out"):
        fogveil.sweep(other, out=tmp_path)
    assert pq.read_table(tmp_path / "results.parquet").num_rows == 16
    assert fogveil.sweep(other, out=tmp_path, force=True).num_rows == 8
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(fogveil.InputError, match="files that no command of this kind wrote"):
        fogveil.sweep(SMALL, out=tmp_path / "mine")


def test_points_lists_of_seeds_and_several_scenarios():
    table = fogveil.sweep(
        {
            "scenario": ["tiny", "few"],
            "policies": ["jsq"],
            "seeds": [7, 9],
            "set": {"horizon": 100.0},
            "points": [{"rate": 50.0}, {"rate": 80.0, "loops.to_cloud": 0.5}],
        }
    ).to_pandas()
    assert set(table["scenario"]) == {"tiny", "few"}
    assert set(table["seed"]) == {7, 9}
    assert set(table[table["rate"] == 80.0]["loops.to_cloud"]) == {0.5}
    assert len(table) == 8


def test_agents_are_trained_first_at_every_point_or_at_one(tmp_path):
    lengths = {"training_steps": 20, "buffer_capacity": 300}
    sweep = {
        **SMALL,
        "policies": [],
        "seeds": 1,
        "grid": {"rate": [60.0, 90.0]},
        "agents": [
            {"agent": "parl", "seeds": [4, 5], "hyperparameters": lengths},
            {"agent": "plrl-ql", "hyperparameters": lengths, "at": {"rate": 60.0}},
        ],
    }
    plan = SweepPlan(read_sweep(sweep), tmp_path)
    assert len(plan.trainings) == 2 * 2 + 1
    outstanding = plan.find_outstanding()
    assert (len(outstanding.trainings), len(outstanding.later_runs)) == (5, 6)
    assert not list(tmp_path.iterdir())  # a plan writes nothing
    table = fogveil.sweep(sweep, out=tmp_path).to_pandas()
    assert sorted(table["policy"]) == ["parl"] * 4 + ["plrl-ql"] * 2
    assert set(table[table["policy"] == "parl"]["training_seed"]) == {4, 5}
    assert list(table[table["policy"] == "parl"]["seeds"]) == [2] * 4  # two trainings, one seed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"policies": []}, "expected at least one policy"),
        ({"grid": {"seed": [1, 2]}}, "give the seeds of runs as the key seeds"),
        ({"gird": {}}, "gird: this key is unknown; did you mean grid"),
        ({"grid": {"rate": []}}, "grid.rate"),
        ({"grid": {"fog.ipx": [1]}}, "fog.ipx: this key is unknown"),
        ({"policies": ["jsk"]}, "no policy is called 'jsk'"),
        ({"scenario": "tinny"}, "no scenario is called 'tinny'"),
        ({"points": [{"rate": 3.0}]}, "rate is in the grid as well"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": True}, "seeds"),
        ({"seeds": [1, 1]}, "seeds: expected different values"),
        ({"policies": ["jsq", "jsq"]}, "policies: expected different values"),
        ({"grid": {"rate": [60.0, 60.0]}}, "grid.rate: expected different values"),
        ({"grid": {"rate": [60.0], "sources.scale": [50.0]}}, "sources.scale: is rate"),
        ({"grid": {"fog": [{}], "fog.ram": [8.0]}}, "fog.ram: is a part of fog"),
        ({"scenario": []}, "scenario"),
        ({"policies": ["jsq", "parl"], "agents": [{"agent": "parl"}]}, "two are called parl"),
    ],
)
def test_a_wrong_sweep_is_one_sentence_and_leaves_nothing(change, sentence, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(fogveil.InputError, match=sentence):
        fogveil.sweep({**SMALL, **change}, out=out)
    assert not out.exists()  # so that a corrected sweep may take it


def test_the_commands(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'scenario = "tiny"\npolicies = ["jsq", "own.py:Own"]\nseeds = 2\n[set]\nhorizon = 300.0\n'
        "[grid]\nrate = [60.0, 90.0]\n"
    )
    (tmp_path / "own.py").write_text(
        "from fogveil.api import Policy\nclass Own(Policy):\n    def place(self, seen): return 0\n"
    )
    dry = command("sweep", file, "--dry-run", cwd=tmp_path)
    assert "4 cells: 0 of 0 trainings and 8 of 8 runs are to be done" in dry.stderr
    assert not (tmp_path / "runs").exists()
    done = command("sweep", file, cwd=tmp_path)
    assert "written: runs/sweep/mine/results.parquet and .csv, 8 rows" in done.stdout
    again = command("sweep", file, cwd=tmp_path)
    assert "0 of 8 runs are to be done" in again.stderr
    drawn = command(
        *("plot", "runs/sweep/mine", "--x", "rate", "--y", "p99", "--by", "policy"), cwd=tmp_path
    )
    assert "p99-over-rate.png" in drawn.stdout
    folder = tmp_path / "runs" / "sweep" / "mine"
    assert all((folder / f"p99-over-rate.{kind}").stat().st_size for kind in ("png", "svg", "pdf"))
    for words, sentence in (
        (("--x", "speed"), "speed: no such column; the table has"),
        (("--x", "rate", "--y", "policy"), "policy: expected a column of numbers"),
        (("--x", "rate", "--where", "policy=x"), "nothing to draw"),
        (("--x", "rate", "--where", "policy"), "expected COLUMN=VALUE"),
    ):
        wrong = command("plot", "runs/sweep/mine", *words, cwd=tmp_path)
        assert wrong.returncode == 2
        assert sentence in wrong.stderr
    missing = command("plot", "nowhere", "--x", "rate", cwd=tmp_path)
    assert "expected the folder of a sweep or comparison" in missing.stderr


def test_policies_of_equal_names_and_points_of_other_keys_stay_apart(tmp_path):
    for folder, node in (("a", 0), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.py").write_text(
            "from fogveil.api import Policy\nclass Mine(Policy):\n"
            f"    def place(self, seen): return {node}\n"
        )
    specs = [f"{tmp_path}/{folder}/p.py:Mine" for folder in "ab"]
    points = [{"rate": 50.0}, {"horizon": 100.0, "service": {"distribution": "exponential"}}]
    sweep = {"scenario": "tiny", "policies": specs, "seeds": 2, "points": points}
    table = fogveil.sweep(sweep).to_pandas()
    assert set(table["policy"]) == set(specs)
    assert set(table["seeds"]) == {2}
    assert set(zip(table["rate"], table["horizon"], strict=True)) == {(50.0, 2000.0), (60.0, 100.0)}
    assert (table["service"] > 0).all()  # the measure, and not the table of that name
    assert table["service (table)"].notna().sum() == 4


def test_a_key_that_varies_is_never_averaged_away(tmp_path):
    table = fogveil.sweep(SMALL, out=tmp_path)
    with pytest.raises(fogveil.InputError, match=r"instructions varies too: add it to --by"):
        series(table, "rate", "mean", ["policy"])
    lines = series(table, "rate", "mean", ["policy", "applications.light.instructions"])
    assert len(lines) == 4
    assert series(table, "rate", "mean", ["policy"], {"applications.light.instructions": "1e3"})
    target = fogveil.plot(
        *(table.to_pandas(), "rate", "mean", ["policy", "applications.light.instructions"]),
        to=tmp_path / "drawn.png",
    )
    assert target == tmp_path / "drawn.png"
    assert target.stat().st_size


def test_runs_of_one_sample_have_no_interval():
    rows = {"rate": [1.0, 1.0], "policy": ["a", "a"], "fog_loop": [3.0, 4.0]}
    rows["sources.kind"] = ["trace", "trace"]
    drawn = series(pa.table(rows), "rate", "mean", ["policy"])
    assert drawn["a",][1.0] == (3.5, None)


def test_the_figure_shows_means_and_intervals_over_seeds(tmp_path):
    table = fogveil.sweep(SMALL, out=tmp_path)
    light = {"applications.light.instructions": "1000.0"}
    lines = series(table, "rate", "mean", ["policy"], light)
    assert set(lines) == {("jsq",), ("setr",)}
    frame = table.to_pandas()
    chosen = frame[
        (frame["policy"] == "jsq")
        & (frame["rate"] == 60)
        & (frame["applications.light.instructions"] == 1000)
    ]
    drawn = lines["jsq",][60.0]
    assert drawn.mean == pytest.approx(chosen["fog_loop"].mean())
    assert drawn.half_width == pytest.approx(12.706 * chosen["fog_loop"].sem(), rel=1e-4)


def test_the_shipped_example_is_a_sweep():
    plan = SweepPlan(read_sweep(ROOT / "examples" / "sweep.toml"), Path("nowhere"))
    assert len(plan.cells) == 18
