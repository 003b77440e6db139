"""`--workers slurm:FILE`: the jobs that are submitted, and what is refused before."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from cluster import SlowSweep, started, wait_until

from fogveil.core.errors import InputError
from fogveil.testbed.workers.choice import parse_workers

FILE = """
jobs = 3
folder = {folder!r}
[job]
cores = 2
memory = "4GB"
queue = "short"
account = "fog"
walltime = "00:30:00"
job_extra_directives = ["--exclusive"]
scheduler_options = {{ host = "127.0.0.1", dashboard_address = "127.0.0.1:0" }}
"""


def test_the_job_script_starts_workers_with_their_identity(tmp_path):
    path = tmp_path / "slurm.toml"
    path.write_text(FILE.format(folder=str(tmp_path / "shared")))
    workers = parse_workers(f"slurm:{path}")
    assert workers.expected == 6
    with workers.cluster() as cluster:
        script = cluster.job_script()
        keys = list((tmp_path / "shared").rglob("key.pem"))
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
    directives = [line.removeprefix("#SBATCH ") for line in script.splitlines()]
    for directive in ("-p short", "-A fog", "-t 00:30:00", "--cpus-per-task=2", "--exclusive"):
        assert directive in directives
    for words in ("--nworkers 2", "--nthreads 1", "--preload fogveil.testbed.workers.preload"):
        assert words in script
    assert f"--tls-key {tmp_path}/shared/slurm/driver/key.pem" in script
    assert "--dashboard-address 127.0.0.1:0" in script
    assert keys
    assert not list((tmp_path / "shared").rglob("key.pem")), "keys outlive the command"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("jobs = ", "is not TOML"),
        ("jobs = 0\n[job]\ncores = 1", "jobs: expected"),
        ("jobs = 1", "job: "),
        ("jobs = 1\n[job]\ncores = 1", "job: expected at least cores, a number, and memory"),
        ("jobs = 1\nhosts = 2\n[job]\ncores = 1", "hosts: "),
    ],
)
def test_a_wrong_file_gets_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "slurm.toml"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        parse_workers(f"slurm:{path}")
    assert str(caught.value).startswith(f"{path}: {sentence}"), caught.value


def test_a_key_that_dask_jobqueue_does_not_know_is_named(tmp_path):
    path = tmp_path / "slurm.toml"
    path.write_text(FILE.format(folder=str(tmp_path / "shared")))
    text = path.read_text().replace("account", "colour")
    path.write_text(text)
    with pytest.raises(InputError, match=r"job\.colour: is no key of SLURMCluster"):
        parse_workers(f"slurm:{path}")


def test_without_slurm_a_command_says_so(tmp_path):
    path = tmp_path / "slurm.toml"
    path.write_text(FILE.format(folder=str(tmp_path / "shared")))
    done = SlowSweep(tmp_path / "sweep", seconds=0).run(f"slurm:{path}", "out")
    assert done.returncode == 3
    assert "there is no command sbatch here" in done.stderr


SBATCH = """#!/bin/sh
cp "$1" "$0.$$"
setsid sh "$0.$$" >"$0.log" 2>&1 &
echo $! >>"$0.jobs"
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
for job in "$@"; do kill -- "-$job"; done
"""


def test_a_sweep_by_jobs_gives_what_the_local_pool_gives(tmp_path):
    """The jobs run beside the test: what Slurm itself does is to find them a host."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    path = tmp_path / "slurm.toml"
    text = FILE.format(folder=str(tmp_path / "shared")).replace("jobs = 3", "jobs = 1")
    path.write_text(text)
    sweep = SlowSweep(tmp_path / "sweep")
    search = f"{commands}{os.pathsep}{os.environ['PATH']}"
    words, log = sweep.words(f"slurm:{path}", "out"), tmp_path / "driver.log"

    def jobs() -> list[int]:
        return [int(job) for job in (commands / "sbatch.jobs").read_text().split()]

    with started(*words, cwd=sweep.folder, log=log, PATH=search) as driver:
        sweep.wait_for(2, "out")
        os.killpg(jobs()[0], signal.SIGKILL)  # as one whose time is over
        assert driver.wait() == 0, log.read_text()
    assert len(jobs()) == 2
    assert sweep.digest(1, "out") == sweep.digest(1, "local")
    wait_until(lambda: not any(map(psutil.pid_exists, jobs())), "the jobs to end")
    assert not list((tmp_path / "shared").rglob("key.pem"))
