"""Delays around events: the table on a case made by hand, the figure, and the command."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from fogveil.core.errors import InputError
from fogveil.testbed.cli.app import app
from fogveil.testbed.records.job_times import JobTimes, JobTimesRecord
from fogveil.testbed.records.join import COLUMNS
from fogveil.testbed.report.around_events import (
    around_events,
    around_table,
    around_tables,
    stretches,
)
from fogveil.testbed.report.run_figure import mark_events, plot_over_time
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.event_text import event_texts

EVENTS = [
    {"at": 10.0, "kind": "speed", "node": "fog-1", "factor": 2.0},
    {"at": 10.0, "kind": "leave", "node": "fog-2"},
    {"at": 30.0, "kind": "join", "node": "fog-2"},
]


def scenario():
    return load_scenario("tiny", {"events": EVENTS, "horizon": 40.0})


def times(*delays: float) -> JobTimes:
    """Return a run whose workloads are emitted at 0, 5, 10, … with these delays."""
    emitted = 5.0 * np.arange(len(delays))
    return JobTimes(emitted, emitted + delays, np.zeros(len(delays), np.int16))


# Emitted at        0  5 | 10 15 20 25 | 30 35
JSQ = [times(2, 4, 9, 9, 5, 7, 1, 1), times(4, 6, 9, 9, 5, 7, 1, 1)]
SETR = [times(2, 2, 3, 3, 3, 3, 1, 1), times(2, 2, 3, 3, 3, 3, 1, 0)]


def test_events_of_one_instant_are_one_and_phases_end_at_the_next_event():
    first, second = stretches(scenario().events, 10.0, 40.0)
    assert first.what == "fog-1 × 2; fog-2 leaves"
    assert first.phases == {"before": (0, 10), "during": (10, 20), "later": (20, 30)}
    assert second.phases == {"before": (10, 30), "during": (30, 40), "later": (40, 40)}


def test_means_and_regret_of_a_case_made_by_hand():
    found = around_events(
        stretches(scenario().events, 10.0, 40.0), {"jsq": JSQ, "setr": SETR}, SETR
    )
    first = found[0]
    assert (first.policy, first.event.at) == ("jsq", 10.0)
    assert first.means["before"].mean == 4.0, "of the means 3 and 5"
    assert first.means["before"].half_width == pytest.approx(12.706, abs=0.001), "Student's t"
    assert (first.means["during"].mean, first.means["later"].mean) == (9.0, 6.0)
    assert first.regret.mean == 4.5, "(6 + 6 + 2 + 4) / 4"
    assert found[1].regret.mean == 0.0
    assert found[2].means["later"] is None, "nothing is emitted after the horizon"
    assert found[2].regret.mean == 0.25


def test_the_table_has_a_row_for_each_policy_and_event():
    rows = around_events(stretches(scenario().events, 10.0, 40.0), {"jsq": JSQ}, None)
    assert [row.regret for row in rows] == [None, None]
    tables = around_tables(rows, 10.0, "setr")
    assert [table.title for table in tables] == [
        "at 10: fog-1 × 2; fog-2 leaves",
        "at 30: fog-2 joins",
    ]
    assert [next(iter(column.cells)) for column in tables[1].columns] == [
        "jsq",
        "7.5",
        "1",
        "–",
        "–",
    ]
    written = around_table(rows).to_pylist()
    assert written[0]["during"] == 9.0
    assert written[0]["later_until"] == 30.0
    assert written[1]["later"] is None


def test_times_are_kept_in_order_of_emission_and_read_again(tmp_path):
    rows = np.zeros((3, len(COLUMNS)))
    at = {name: place for place, name in enumerate(COLUMNS)}
    rows[:, at["job"]] = [2, 0, 1]
    rows[:, at["emitted"]] = [5.0, 1.0, 5.0]
    rows[:, at["returned"]] = [9.0, 3.0, 6.0]
    rows[:, at["node"]] = [2, 1, 0]
    record = JobTimesRecord()
    record.take(rows, None)
    (tmp_path / "times.npz").write_bytes(record.content())
    kept = JobTimes.load(tmp_path / "times.npz")
    assert kept.emitted.tolist() == [1.0, 5.0, 5.0]
    assert kept.delay.tolist() == [2.0, 1.0, 4.0], "of one instant, by job"
    assert kept.node.tolist() == [1, 0, 2]


# --- the figure of a run -------------------------------------------------------------------------


def test_events_are_marked_once_an_instant_and_the_key_says_what_happens():
    from matplotlib.figure import Figure

    drawing = Figure()
    axis = drawing.subplots()
    mark_events(drawing, axis, event_texts(load_scenario("day").events))
    instants = {text.at for text in event_texts(load_scenario("day").events)}
    assert {line.get_xdata()[0] for line in axis.get_lines()} == instants
    assert [text.get_text() for text in axis.texts] == [str(n + 1) for n in range(len(instants))]
    key = [text.get_text() for text in drawing.legends[0].get_texts()]
    assert key[2] == "3  at 500: fog-1 joins; fog-1 × 2"
    assert "10  at 1,500: fog-2 is back" in key


def test_a_run_without_events_has_no_key(tmp_path):
    jobs = pa.table({"emitted": [1.0, 2.0, 3.0], "returned": [2.0, 4.0, 6.0]})
    plot_over_time(jobs, 10.0, tmp_path / "calm")
    plot_over_time(
        jobs, 2100.0, tmp_path / "changing", load_scenario("day", {"horizon": 2100.0}).events
    )
    calm, changing = ((tmp_path / f"{name}.svg").read_text() for name in ("calm", "changing"))
    assert len(changing) > len(calm)


# --- the commands --------------------------------------------------------------------------------


def command(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_compare_prints_and_writes_what_happens_around_events(tmp_path):
    options = ("--policies", "jsq", "--seeds", 2, "--out", tmp_path)
    done = command("compare", "upgrade", *options, "--around-events", 300)
    assert done.exit_code == 0, done.output
    assert "at 1,200: fog-2 × 2" in done.output
    assert "first 300" in done.output
    rows = csv.read_csv(tmp_path / "around-events.csv").to_pylist()
    assert [row["policy"] for row in rows] == ["jsq", "setr"], "the oracle is added"
    assert rows[1]["regret"] == 0
    assert rows[0]["regret"] > 0
    again = command("compare", "upgrade", *options, "--around-events")
    assert "first 1,000" in again.output, "the default; runs are not repeated"
    assert "4 of them done before" in again.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("tiny", "--around-events"), "scenario tiny has no events"),
        (("upgrade", "--around-events", "-5"), "expected a positive number"),
    ],
)
def test_around_events_needs_events(tmp_path, words, sentence):
    done = command("compare", *words, "--policies", "jsq", "--out", tmp_path)
    assert isinstance(done.exception, InputError)
    assert sentence in str(done.exception)


def test_a_run_with_events_is_drawn_where_its_records_are(tmp_path):
    done = command("run", "maintenance", "--policy", "jsq", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "over-time.png").exists()
    calm = command("run", "tiny", "--policy", "jsq", "--out", tmp_path / "calm")
    assert calm.exit_code == 0
    assert not (tmp_path / "calm" / "over-time.png").exists()
    shown = command("figures", tmp_path / "run", "--out", tmp_path / "figures")
    assert shown.exit_code == 0, shown.output
    assert "at 800: fog-3 leaves" in (tmp_path / "figures/over-time-jsq.svg").read_text()


def test_leakage_says_when_a_secret_change_is_known(tmp_path):
    words = ("leakage", "upgrade", "--decisions", 120, "--permutations", 1, "--out", tmp_path)
    done = command(*words, "--policy", "ci-setr")
    assert done.exit_code == 0, done.output
    assert "fog-2 changes at 1,200" in done.output
    kept = json.loads((tmp_path / "count-change.json").read_text())
    assert len(kept["error"]) == 120 - kept["first"]
    assert kept["error"][-kept["first"]] > 0.05, "at once nobody knows"
    refused = command("leakage", "maintenance", "--out", tmp_path)
    assert "none of kind speed" in str(refused.exception)
