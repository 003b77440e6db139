"""Files that another process may read are never missing, empty or half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from federated_support import Parts

from fogveil.broker.acl import AccessList, BrokerSecurity
from fogveil.broker.address import Address
from fogveil.broker.mosquitto import write_files
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import AGENT, Identity
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.certificates import Mint
from fogveil.testbed.records.output import write_json

REWRITES = 400
READER = """
import json, sys
from pathlib import Path

def fault(path):
    try:
        content = path.read_bytes()
    except OSError as error:
        return error.strerror
    if not content.endswith(sys.argv[1].encode()):
        return f"{len(content)} bytes, without their end"

files, reads = [Path(name) for name in sys.argv[3:]], 0
while not Path(sys.argv[2]).exists():
    for path in files:
        reads += 1
        if found := fault(path):
            sys.exit(f"{path.name}: {found}, after {reads} reads")
    if reads == len(files):
        print("reading", flush=True)
"""


def rewrite_certificates(folder: Path) -> tuple[Callable[[], object], str]:
    mint = Mint("5eed")
    return lambda: mint.issue(Identity("5eed", AGENT, AGENT), folder), "-----\n"


ROSTER = Roster(("sources",), ("fog-1", "fog-2"), "cloud")


def rewrite_settings(folder: Path) -> tuple[Callable[[], object], str]:
    parts = Parts(folder)
    return parts.split.clock, "}"


def rewrite_results(folder: Path) -> tuple[Callable[[], object], str]:
    return lambda: write_json(folder / "run.json", {"rows": [*range(2000)]}), "}"


def rewrite_access(folder: Path) -> tuple[Callable[[], object], str]:
    table = AccessList.for_run("5eed", ROSTER)
    return lambda: table.write(folder / "access.json"), "}"


def rewrite_broker(folder: Path) -> tuple[Callable[[], object], str]:
    security = BrokerSecurity.for_run("5eed", ROSTER, Credentials(folder / "identity"))
    address = Address("127.0.0.1", 8883, tls=True)
    return lambda: write_files(folder, address, security, Path("/plugin.so")), ""


@pytest.mark.parametrize(
    "kind",
    [rewrite_certificates, rewrite_settings, rewrite_results, rewrite_access, rewrite_broker],
)
def test_a_reader_finds_a_file_whole_while_it_is_rewritten(tmp_path, kind):
    folder, stop = tmp_path / "written", tmp_path / "stop"
    folder.mkdir()
    rewrite, end = kind(folder)
    rewrite()
    files = [str(path) for path in folder.rglob("*") if path.is_file()]
    assert files
    with subprocess.Popen(
        [sys.executable, "-c", READER, end, str(stop), *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reader:
        try:
            assert reader.stdout.readline() == "reading\n"
            for _ in range(REWRITES):
                rewrite()
        finally:
            stop.touch()
        _, error = reader.communicate(timeout=60)
    assert reader.returncode == 0, error
    left = {str(path) for path in folder.rglob("*") if path.is_file()}
    assert left == {*files}
    for path in (Path(name) for name in files if name.endswith(".json")):
        json.loads(path.read_text())
