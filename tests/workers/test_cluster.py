"""Workers of a Dask scheduler: the results of the local pool, whoever is killed."""

from __future__ import annotations

from pathlib import Path

from cluster import (
    SEEDS,
    Cluster,
    SlowSweep,
    cluster,
    digest_of,
    fogveil,
    kill,
    started,
    wait_until,
)

TRAINING = """
scenario = "tiny"
[[agents]]
agent = "parl"
hyperparameters = { training_steps = 20, buffer_capacity = 1000 }
"""


def test_a_cluster_gives_what_the_local_pool_gives(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep", seconds=0)
    trained = tmp_path / "trained.toml"
    trained.write_text(TRAINING)
    with cluster(tmp_path, 2) as there:
        done = sweep.run(there.workers, "cluster")
        assert digest_of(done) == sweep.digest(2, "local")
        assert (
            f"2 workers of the scheduler at {there.address}; Dask's dashboard is http://127"
            in done.stderr
        )
        assert len(sweep.ran()) > 2, "processes of the pool, and of the cluster"
        agents, digests = [], []
        for name, workers in (("one", "1"), ("there", there.workers)):
            words = ("sweep", trained, "--out", tmp_path / name, "--json", "--workers", workers)
            digests.append(digest_of(fogveil(*words, cwd=tmp_path)))
            agents += [path.read_bytes() for path in tmp_path.glob(f"{name}/training/*/agent.npz")]
    assert digests[0] == digests[1]
    assert len(agents) == 2
    assert agents[0] == agents[1]


def test_what_a_lost_worker_was_computing_is_computed_again_and_nothing_else(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep")
    there = Cluster(tmp_path)
    log = tmp_path / "driver.log"
    with (
        there.scheduler(),
        there.host("first"),
        there.host("second") as second,
        started(*sweep.words(there.workers, "out"), cwd=sweep.folder, log=log) as driver,
    ):
        sweep.wait_for(4, "out")
        kill(second)
        assert driver.wait() == 0, log.read_text()
    assert sweep.finished("out") == SEEDS
    # The one that it was computing, and one that may have been finished and not yet fetched.
    assert sum(sweep.ran().values()) <= SEEDS + 2
    assert sweep.digest(1, "out") == sweep.digest(1, "local")


def test_a_killed_driver_continues_with_another_number_of_workers(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep")
    there = Cluster(tmp_path)
    with there.scheduler(), there.host("first"):
        words = sweep.words(there.workers, "out")
        with started(*words, cwd=sweep.folder, log=tmp_path / "driver.log") as driver:
            sweep.wait_for(4, "out")
            kill(driver)
        kept = files(sweep)
        with there.host("second"):
            digest = sweep.digest(there.workers, "out")
    assert len(kept) >= 4
    assert kept.items() <= files(sweep).items()
    assert digest == sweep.digest(1, "local")


def test_a_lost_scheduler_ends_the_command_and_is_joined_again(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep")
    there, log = Cluster(tmp_path), tmp_path / "driver.log"
    with (
        there.scheduler() as scheduler,
        there.host("host"),
        started(*sweep.words(there.workers, "out"), cwd=sweep.folder, log=log) as driver,
    ):
        sweep.wait_for(2, "out")
        kill(scheduler)
        assert driver.wait() == 3
        last = log.read_text().splitlines()[-1]
        assert last.startswith("fogveil: the scheduler of the workers is gone; the same command")
        assert "Traceback" not in log.read_text()
        joined = (tmp_path / "host.log").read_text
        with there.scheduler():
            wait_until(lambda: joined().count("Registered to") > 1, "the workers to join again")
            assert sweep.digest(there.workers, "out") == sweep.digest(1, "local")


def files(sweep: SlowSweep) -> dict[Path, int]:
    """Return the finished results; one that is written again is another file."""
    return {path: path.stat().st_ino for path in sweep.folder.glob("out/runs/*.json")}
