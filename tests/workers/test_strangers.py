"""Who may connect to a cluster, and whose code gets work: everybody else is refused."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from pathlib import Path

import psutil
import pytest
from cluster import SEEDS, Cluster, SlowSweep, digest_of
from support import ROOT

from fogveil.testbed.workers.folder import make_folder

FOLDERS = ("proto", "provider_node", "broker", "agent", "testbed")


def ports_of(pid: int) -> set[tuple[str, int]]:
    """Return where a process and its children listen."""
    process = psutil.Process(pid)
    everybody = [process, *process.children(recursive=True)]
    sockets = [each for one in everybody for each in one.net_connections("tcp")]
    return {tuple(each.laddr) for each in sockets if each.status == psutil.CONN_LISTEN}


def alert_for(port: int, folder: Path | None) -> str:
    """Return what a server answers to somebody who believes whatever it says of itself."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if folder:
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    with (
        pytest.raises(ssl.SSLError) as caught,
        socket.create_connection(("127.0.0.1", port), 30) as connection,
        context.wrap_socket(connection) as secured,
    ):
        assert secured.recv(1) == b"", "somebody answered"
    return str(caught.value.reason)


def changed_code(folder: Path) -> str:
    """Copy the package, change one line of it, and return the search path of the copy."""
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name / "fogveil", folder / name / "fogveil", ignore=ignored)
    path = folder / "provider_node/fogveil/provider_node/node.py"
    path.write_text(path.read_text() + "\n# changed\n")
    return os.pathsep.join(str(folder / name) for name in FOLDERS)


def test_strangers_are_refused_and_other_code_gets_no_work(tmp_path):
    sweep = SlowSweep(tmp_path / "sweep", seconds=0)
    stranger = tmp_path / "stranger"
    make_folder(stranger)
    there = Cluster(tmp_path)
    other = changed_code(tmp_path / "other")
    with (
        there.scheduler() as scheduler,
        there.host("good") as good,
        there.host("changed", PYTHONPATH=other) as changed,
    ):
        listening = ports_of(scheduler.pid) | ports_of(good.pid)
        # Dask's own pages and its supervisors: for users of the host alone.
        secured = [int(there.address.rpartition(":")[2])]
        secured += [port for host, port in listening if not host.startswith("127.")]
        assert len(secured) >= 2
        for port in secured:
            assert "CERTIFICATE_REQUIRED" in alert_for(port, None)
            assert "UNKNOWN_CA" in alert_for(port, stranger / "driver")

        done = sweep.run(f"dask://{stranger}@{there.address}", "out")
        assert done.returncode == 3
        assert f"the scheduler at {there.address} is not that of {stranger}" in done.stderr

        done = sweep.run(there.workers, "out")
        workers = {each.pid for each in psutil.Process(good.pid).children(recursive=True)}
        assert set(sweep.ran()) <= workers
        assert sum(sweep.ran().values()) == SEEDS
        assert "is refused: it runs other code (" in done.stderr
        assert "install the same fogveil, Python and libraries there" in done.stderr
        assert digest_of(done) == sweep.digest(1, "local")
        assert changed.poll() is None
