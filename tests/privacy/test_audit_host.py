"""The audit's checks of what participants leave on their host, and of secrets in all they get."""

from __future__ import annotations

import base64
import gzip
import stat

import pytest
from audit_support import Wire, assert_passes, broken, data, tapped
from hyperframe.frame import DataFrame

from fogveil.protocol.identity import AGENT, CLOCK
from fogveil.testbed.privacy.audit.channels import judge_evidence
from fogveil.testbed.privacy.audit.findings import Verdict
from fogveil.testbed.privacy.audit.host_watch import FileFact
from fogveil.testbed.privacy.audit.reference import WATCH


def a_file(path, user, mode=0o600, **values):
    return FileFact(path, user, stat.S_IFREG | mode, 6, 0, **values)


def process(host, name="fog-2"):
    return host.processes[name]


def add_shared_memory(host):
    host.ipc.append("shm 7 9")
    host.ipc_users.append(host.users["fog-2"])


HOST = {
    "a second port": ("ports", lambda h: process(h).listens.add("tcp 0.0.0.0:9090")),
    "a datagram socket": ("ports", lambda h: process(h).listens.add("udp 127.0.0.1:9090")),
    "an abstract socket": ("ports", lambda h: process(h).listens.add("unix @ipt-377918")),
    "another peer": ("ports", lambda h: process(h).dials.add("127.0.0.1:9090")),
    "a title": ("processes", lambda h: process(h).commands.add(("fog-2 ipt=377918",))),
    "a child": ("processes", lambda h: process(h).commands.add(("sleep", "377918"))),
    "a priority": ("processes", lambda h: process(h).attributes.add(("nice 7",))),
    "a lock": ("processes", lambda h: process(h).locks.add("POSIX ADVISORY WRITE 377 918")),
    "a thread": ("processes", lambda h: process(h).names.add("ipt-fast")),
    "a file": ("files", lambda h: h.folders["fog-2"].append(a_file("note", h.users["fog-2"]))),
    "an open file": (
        "files",
        lambda h: h.folders["fog-2"].append(a_file("journal-0000.csv", h.users["fog-2"], 0o644)),
    ),
    "a pipe": (
        "files",
        lambda h: h.folders["fog-2"].append(
            FileFact("config.json", h.users["fog-2"], stat.S_IFIFO | 0o600, 0, 0)
        ),
    ),
    "an attribute": (
        "files",
        lambda h: h.folders["fog-2"].append(
            a_file("config.json", h.users["fog-2"], attributes=("user.ipt",))
        ),
    ),
    "a trace in /tmp": ("files", lambda h: h.left.append(a_file("/tmp/x", h.users["fog-2"]))),
    "shared memory": ("files", add_shared_memory),
    "a report": ("output", lambda h: h.reports.append(("fog-2", {"load": 7}))),
    "counts that are none": (
        "output",
        lambda h: h.reports.append(
            (AGENT, {"agent": {"decisions": 1, "queued": 377, "counts": [1, 2, 3, 918]}})
        ),
    ),
    "a line": ("output", lambda h: h.output["fog-2"].append("served 377")),
    "an exit code": ("output", lambda h: setattr(process(h), "exit_code", 7)),
}


@pytest.mark.parametrize("change", HOST)
def test_what_the_host_shows_is_judged(honest, change):
    evidence = honest.copy()
    evidence.host.users = evidence.host.users or {
        name: 2**30 + number for number, name in enumerate((*honest.roster.all, CLOCK))
    }
    check, mutate = HOST[change]
    mutate(evidence.host)
    assert check in broken(evidence)


def test_secrets_are_found_in_derived_forms_and_encodings(honest):
    """The first version sought literal spellings of planted numbers only."""
    fogs = honest.world.fogs
    service = fogs[0].instructions[0] / fogs[0].ipt
    ratio = fogs[0].ipt / fogs[1].ipt
    for note in (
        f"service {service!r}".encode(),
        f"{ratio:.12f}".encode(),
        base64.b64encode(gzip.compress(f"{fogs[2].ram:.0f}".encode() * 3)),
        str(int(fogs[1].ipt))[::-1].encode(),
        f"{honest.world.agent.seed + 0}".encode() + str(honest.world.scenario.seed).encode(),
    ):
        evidence = honest.copy()
        evidence.host.folders[AGENT].append(a_file("decisions-0000.csv", 0, content=note))
        assert "secrets" in broken(evidence), note
    evidence = honest.copy()
    evidence.host.left.append(a_file("/tmp/x", 12345, content=f"{service!r}".encode()))
    assert broken(evidence) == {"secrets"}


def test_a_run_that_sent_nothing_is_not_shown(honest):
    evidence = honest.copy()
    evidence.wire.connections.clear()
    evidence.host = type(evidence.host)()
    verdicts = {f.promise.partition(":")[0]: f.verdict for f in judge_evidence(evidence)}
    assert verdicts["messages"] is Verdict.FAIL  # they are missing
    for check in ("frames", "packets", "ports", "processes", "files", "output", "secrets"):
        assert verdicts[check] is Verdict.NOT_SHOWN, check
    assert (AGENT, "fog-1", WATCH) in honest.reference.grpc


def test_a_policy_that_the_auditor_does_not_run_is_followed(tmp_path):
    """A user's policy runs in the agent's process alone: the others are judged by its decisions."""
    policy = tmp_path / "mine.py"
    policy.write_text(
        "from fogveil.agent.policy import Level, Policy\n\n\n"
        "class Mine(Policy):\n"
        "    needs = Level.COUNT\n\n"
        "    def place(self, seen):\n"
        "        return max(range(len(seen.counts)), key=lambda node: (seen.counts[node], node))\n"
    )
    tmp_path.chmod(0o755)
    evidence = tapped(tmp_path / "run", "count", "builtin", policy=f"{policy}:Mine")
    assert_passes(evidence)
    verdicts = {f.promise.partition(":")[0]: f.verdict for f in judge_evidence(evidence)}
    assert verdicts["messages"] is Verdict.PASS
    assert verdicts["records"] is Verdict.NOT_SHOWN
    wire = Wire(evidence, "fog-3", AGENT)
    assert "messages" in wire.put(wire.places(DataFrame)[4], data(b"\x0a\x01\x55"))
