"""What the tests of the audit's checks share: tapped runs, and changes of what was recorded."""

from __future__ import annotations

from hyperframe.frame import DataFrame
from support import SCENARIOS

from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.privacy.audit import procedure
from fogveil.testbed.privacy.audit.canaries import plant
from fogveil.testbed.privacy.audit.channels import judge_evidence
from fogveil.testbed.privacy.audit.findings import Verdict
from fogveil.testbed.privacy.audit.tapped_run import run_tapped
from fogveil.testbed.privacy.audit.traffic import PREFACE, GrpcTraffic
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

POLICIES = {"count": "jsq", "total": procedure.TOTAL_OBSERVER, "full": "setr", "none": "random"}


def tapped(folder, level, broker, policy=None, **plan):
    overrides = {"horizon": 600, "disclosure": level, "seed": 5}
    world = build_world(plant(load_scenario(SCENARIOS / "tiny.toml", overrides), 7))
    plan = Plan(policies=(policy or POLICIES[level],), broker=broker, **plan)
    return run_tapped(world, plan, folder)


def broken(evidence):
    """Return the promises that fail."""
    findings = judge_evidence(evidence)
    return {f.promise.partition(":")[0] for f in findings if f.verdict is Verdict.FAIL}


def assert_passes(evidence):
    faults = {f.promise: f.details for f in judge_evidence(evidence) if f.verdict is Verdict.FAIL}
    assert not faults


class Wire:
    """One direction of a recorded gRPC connection, as frames to change."""

    def __init__(self, evidence, sender, receiver):
        self.evidence = evidence.copy()
        for connection in self.evidence.wire.connections:
            if (connection.caller, connection.callee) == (sender, receiver):
                self.stream, self.preface, side = connection.up, PREFACE, "up"
            elif (connection.callee, connection.caller) == (sender, receiver):
                self.stream, self.preface, side = connection.down, b"", "down"
            else:
                continue
            self.connection = connection
            reads = getattr(GrpcTraffic(connection), side).frames
            self.frames = [[read.frame, read.raw] for read in reads]

    def places(self, kind):
        """Return where frames of a kind are."""
        return [at for at, (frame, _) in enumerate(self.frames) if isinstance(frame, kind)]

    def put(self, at, *frames):
        """Put frames or bytes in place of the one at a position; return what fails then."""
        self.frames[at : at + 1] = [
            [None, f if isinstance(f, bytes) else f.serialize()] for f in frames
        ]
        content = self.preface + b"".join(raw for _, raw in self.frames)
        self.stream.content[:] = content
        return broken(self.evidence)

    def add(self, frame):
        """Put a frame after the last DATA frame."""
        at = self.places(DataFrame)[-1]
        return self.put(at, self.frames[at][1], frame)


def data(payload, flag=0, stream=1, **options):
    prefix = bytes((flag,)) + len(payload).to_bytes(4, "big")
    return DataFrame(stream, data=prefix + payload, **options)
