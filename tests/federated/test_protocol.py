"""The protocol's checked-in stubs and fields, and what a provider's process loads."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from federated_support import run_and_disturb
from support import ROOT

from fogveil.v1 import boundary_pb2, clock_pb2, full_pb2, total_pb2

HEAVY = ("torch", "pyarrow", "pandas", "matplotlib", "simpy", "networkx", "pydantic")


def test_the_checked_in_stubs_are_fresh(tmp_path):
    generator = ROOT / "proto/generate.py"
    spec = importlib.util.spec_from_file_location("generate", generator)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.generate(tmp_path)
    folder = ROOT / "proto/fogveil/v1"
    fresh = {path.name: path.read_text() for path in (tmp_path / "fogveil/v1").iterdir()}
    checked_in = {
        path.name: path.read_text()
        for path in folder.iterdir()
        if path.is_file() and "_pb2" in path.name
    }
    assert fresh == checked_in
    assert len(fresh) >= 14


def test_buf_lint_is_clean():
    buf = Path(sys.executable).parent / "buf"
    done = subprocess.run([buf, "lint"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""


def fields_of(message) -> list[tuple[str, str, bool]]:
    from google.protobuf.descriptor import FieldDescriptor

    kinds = {FieldDescriptor.TYPE_UINT32: "uint32", FieldDescriptor.TYPE_FIXED32: "fixed32"}
    return [
        (field.name, kinds.get(field.type, str(field.type)), field.is_repeated)
        for field in message.DESCRIPTOR.fields
    ]


def test_counts_are_all_that_crosses_the_boundary():
    assert fields_of(boundary_pb2.WatchResponse) == [("counts", "uint32", True)]
    place = [("episode", "uint32", False), ("index", "uint32", False)]
    assert fields_of(boundary_pb2.WatchRequest) == place, "the agent's own place, of windows"
    (service,) = boundary_pb2.DESCRIPTOR.services_by_name.values()
    (method,) = service.methods
    assert (service.full_name, method.name) == ("fogveil.v1.QueueService", "Watch")
    assert method.output_type.full_name == "fogveil.v1.WatchResponse"
    assert method.server_streaming
    assert not method.client_streaming


def test_shares_are_all_that_crosses_the_boundary_of_a_total():
    assert fields_of(total_pb2.TotalServiceWatchResponse) == [("shares", "fixed32", True)]
    place = [("episode", "uint32", False), ("index", "uint32", False)]
    assert fields_of(total_pb2.TotalServiceWatchRequest) == place


def test_a_providers_messages_to_the_clock_have_no_fields():
    for message in (clock_pb2.ProviderReady, clock_pb2.ProviderDone):
        assert fields_of(message) == []
    assert set(full_pb2.DESCRIPTOR.services_by_name) == {"ResourcesService"}


@pytest.mark.parametrize(
    "module", ["fogveil.provider_node.process", "fogveil.provider_node.__main__"]
)
def test_a_provider_loads_none_of_the_experimenters_libraries(module):
    script = f"import sys, {module}\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == ""


def test_a_provider_stays_small_while_it_works(tmp_path):
    """And no participant loads what only training and evaluation need."""

    def act(testbed):
        for name, participant in testbed.participants.items():
            status = Path(f"/proc/{participant.process.pid}/status").read_text()
            (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
            sizes[name] = int(line.split()[1]) / 1024
            loaded[name] = Path(f"/proc/{participant.process.pid}/maps").read_text()

    sizes, loaded = {}, {}
    run_and_disturb(tmp_path, act)
    for name in ("fog-1", "fog-2", "fog-3", "cloud"):
        assert sizes[name] < 80, sizes
    for name, maps in loaded.items():
        for library in ("torch", "pyarrow", "matplotlib"):
            assert f"/site-packages/{library}" not in maps, (name, library)
