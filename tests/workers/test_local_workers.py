"""`--workers` on this machine: any number gives the same results, and wrong words one sentence."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from cluster import FOGVEIL, SEEDS, SlowSweep, fogveil
from support import ROOT

from fogveil.core.errors import InputError
from fogveil.testbed.workers.choice import DaskWorkers, LocalWorkers, parse_workers
from fogveil.testbed.workers.folder import DEFAULT_FOLDER
from fogveil.testbed.workers.local import cores

COMMANDS = {
    "sweep": ("examples/sweep.toml", "--dry-run"),
    "compare": ("tiny",),
    "evaluate": ("agent.npz", "tiny"),
    "leakage": ("tiny",),
    "league": ("--dry-run",),
    "change": ("--plan",),
    "map": ("--plan",),
    "reproduce": ("--plan",),
}


def test_any_number_of_workers_gives_the_same_results(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep", seconds=0)
    assert sweep.digest(1, "one") == sweep.digest(2, "two")


def test_an_interrupted_sweep_keeps_what_its_workers_finish(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep")
    process = subprocess.Popen(
        [*FOGVEIL, *sweep.words(2, "out")], stderr=subprocess.PIPE, text=True, cwd=sweep.folder
    )
    with process:
        sweep.wait_for(2, "out")
        process.send_signal(signal.SIGINT)
        assert "stopped; the same command continues" in process.communicate()[1]
    assert process.returncode == 130
    begun = sum(sweep.ran().values())
    assert begun < SEEDS
    # But for one, of which the driver does not know yet that a worker has begun it.
    assert begun - 1 <= sweep.finished("out") <= begun
    sweep.digest(1, "out")
    assert SEEDS <= sum(sweep.ran().values()) <= SEEDS + 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0", "--workers 0: expected a number of processes, dask://HOST:PORT"),
        ("two", "--workers two: expected a number of processes"),
        ("-1", "--workers -1: expected a number"),
        ("tcp://here:1", "--workers tcp://here:1: expected a number"),
        ("dask://here", "--workers dask:// here: expected HOST:PORT, such as 10.0.0.7:8786"),
        ("dask://:8786", "--workers dask:// :8786: expected HOST:PORT"),
        ("dask://here:99999", "--workers dask:// here:99999: expected HOST:PORT"),
        ("slurm:none.toml", "--workers slurm:none.toml: cannot be read: No such file"),
    ],
)
def test_wrong_words_get_one_sentence(text, sentence):
    with pytest.raises(InputError) as caught:
        parse_workers(text)
    assert str(caught.value).startswith(sentence)


def test_workers_are_named_by_a_number_or_an_address():
    assert parse_workers(None) == LocalWorkers(cores())
    assert parse_workers(3) == parse_workers("3") == LocalWorkers(3)
    assert parse_workers("dask://h:1") == DaskWorkers("h:1", DEFAULT_FOLDER)
    assert parse_workers("dask://a/b@h:1") == DaskWorkers("h:1", Path("a/b"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_many_runs_has_the_option(command, tmp_path):
    done = fogveil(command, *COMMANDS[command], "--workers", "none", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fogveil: --workers none: expected a number of processes")
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_cluster_is_refused_with_a_sentence(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep", seconds=0)
    done = sweep.run("dask://127.0.0.1:9", "out")
    assert done.returncode == 2
    assert "runs/workers/key.pem: does not exist; expected a folder of `fogveil work" in done.stderr
