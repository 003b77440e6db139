"""A training that is stopped says how it goes on, and leaves one log of each episode."""

from __future__ import annotations

import json

import pytest
from support import SCENARIOS
from typer.testing import CliRunner

import fogveil.testbed.records.training_log as training_log
from fogveil.testbed.cli.app import app

VALUES = "buffer_capacity = 2000\ntraining_steps = 120\nlayers = [16]\nbatch_size = 8\n"


def scalars(folder) -> dict[str, list[int]]:
    """Return the steps of each curve, from all of TensorBoard's files and in their order."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    steps: dict[str, list[int]] = {}
    for path in sorted((folder / "tensorboard").iterdir()):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps


def train(tmp_path, monkeypatch, stop_after: int | None = None):
    """Run the command, with Ctrl-C when so many of its episodes are in the log."""
    logged = 0
    add_scalars = training_log._add_scalars

    def interrupting(board, line):
        nonlocal logged
        add_scalars(board, line)
        logged += 1
        if logged == stop_after:
            raise KeyboardInterrupt

    monkeypatch.setattr(training_log, "_add_scalars", interrupting)
    values = tmp_path / "values.toml"
    values.write_text(VALUES)
    words = ("train", SCENARIOS / "tiny.toml", "--agent", "parl", "--disclosure", "total")
    words += ("--hyperparameters", values, "--every", 2, "--out", tmp_path / "out")
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.mark.parametrize(
    ("stop_after", "sentence"),
    [
        (1, "stopped; there is no checkpoint in OUT yet (one is written every 2 episodes): the"),
        (5, "stopped; the same command continues from the checkpoint in OUT, with episode 4"),
    ],
)
def test_a_stopped_training_says_how_it_continues(tmp_path, monkeypatch, stop_after, sentence):
    done = train(tmp_path, monkeypatch, stop_after)
    assert sentence.replace("OUT", str(tmp_path / "out")) in " ".join(done.output.split())
    assert done.exit_code == 130
    assert train(tmp_path, monkeypatch).exit_code == 0
    log = (tmp_path / "out" / "episodes.jsonl").read_text().splitlines()
    episodes = [json.loads(line)["episode"] for line in log]
    assert len(episodes) > 5
    assert all(steps == episodes for steps in scalars(tmp_path / "out").values())
