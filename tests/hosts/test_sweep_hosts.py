"""A sweep on several hosts, of which one loses its network, and one its power."""

from __future__ import annotations

import pytest
from cluster import FOGVEIL, SEEDS, SlowSweep, wait_until
from hosts import Host, switch

PORT = 8786
NOTICED_AFTER = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s"}
"""Of a cable that is cut; by default it is 30 s, and this the least."""


@pytest.mark.hosts
def test_a_sweep_survives_cut_cables_and_the_loss_of_a_host(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep", seconds=0.3)
    elsewhere, certificates = tmp_path / "elsewhere", tmp_path / "certificates"
    elsewhere.mkdir()
    joined = {}

    def join(host: Host) -> None:
        log = joined[host] = tmp_path / f"{host.name}.log"
        words = (*FOGVEIL, "workers", "start", certificates / "worker", "--count", 1)
        host.start(*words, cwd=elsewhere, log=log, **NOTICED_AFTER)

    with switch() as cables:
        names = ("head", "desk", "first", "second", "third")
        head, desk, first, second, third = map(cables.connect, names)
        address = f"{head.address}:{PORT}"
        words = (*FOGVEIL, "workers", "scheduler", certificates, "--listen", address)
        log = tmp_path / "scheduler.log"
        head.start(*words, cwd=elsewhere, log=log, **NOTICED_AFTER)
        wait_until(lambda: "Scheduler at" in log.read_text(), "the scheduler")
        for host in (first, second, third):
            join(host)
        for text in joined.values():
            wait_until(lambda text=text: "Registered to" in text.read_text(), "a worker")

        def begin(out: str):
            words = (*FOGVEIL, *sweep.words(f"dask://{certificates}@{address}", out))
            driver = desk.start(*words, cwd=sweep.folder, log=tmp_path / f"{out}.log")
            sweep.wait_for(2, out)
            return driver

        def end(driver, out: str) -> None:
            assert driver.wait() == 0, (tmp_path / f"{out}.log").read_text()
            assert sweep.finished(out) == SEEDS
            sweep.log.write_text("")

        driver = begin("mended")
        second.cut()
        begun = sum(sweep.ran().values())
        wait_until(lambda: sum(sweep.ran().values()) > begun, "the other host to go on")
        second.mend()
        wait_until(lambda: driver.poll() is not None, "the sweep")
        assert sum(sweep.ran().values()) == SEEDS, "a short cut costs nothing"
        end(driver, "mended")

        driver = begin("lost")
        second.cut()
        third.lose_power()
        wait_until(lambda: driver.poll() is not None, "the sweep without two hosts")
        end(driver, "lost")
        second.mend()
        again = joined[second]
        wait_until(lambda: again.read_text().count("Registered to") > 1, "the host to come back")

    local = sweep.digest(1, "local")
    assert [sweep.digest(1, out) for out in ("mended", "lost")] == [local] * 2
