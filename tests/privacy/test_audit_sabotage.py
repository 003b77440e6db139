"""Checks that the catalogue of breakages does not reach: those of containers, and the launcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from support import SCENARIOS

from fogveil.broker.acl import AccessList
from fogveil.broker.topics import Topics
from fogveil.core.disclosure import Level
from fogveil.protocol.identity import AGENT, Identity
from fogveil.testbed.launch import local_launcher
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.local_launcher import LocalLauncher
from fogveil.testbed.launch.participant_config import Plan, Split
from fogveil.testbed.privacy.audit.count_check import check_counts, check_masks
from fogveil.testbed.privacy.audit.findings import Verdict
from fogveil.testbed.privacy.audit.mqtt_access_check import check_mqtt_access
from fogveil.testbed.privacy.audit.procedure import TOTAL_OBSERVER
from fogveil.testbed.privacy.audit.process_check import check_process
from fogveil.testbed.privacy.audit.recording_check import check_canaries, check_wire
from fogveil.testbed.privacy.audit.schema_check import check_schema
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world
from fogveil.v1 import boundary_pb2

# --- fields and methods --------------------------------------------------------------------------


def changed_methods(change) -> list:
    """Return the methods of QueueService after a change of its file descriptor."""
    file = FileDescriptorProto()
    boundary_pb2.DESCRIPTOR.CopyToProto(file)
    change(file)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return list(pool.FindServiceByName("fogveil.v1.QueueService").methods)


def test_an_added_field_fails_the_schema_check():
    assert (
        check_schema(Level.COUNT, {"fog-1": changed_methods(lambda file: None)}).verdict
        is Verdict.PASS
    )

    def add(file):
        response = next(m for m in file.message_type if m.name == "WatchResponse")
        response.field.add(name="utilisation", number=2, type=1, label=1)

    finding = check_schema(Level.COUNT, {"fog-1": changed_methods(add)})
    assert finding.verdict is Verdict.FAIL
    assert "fog-1 serves WatchResponse.utilisation=2:double: not listed" in finding.details


def test_an_added_method_fails_the_schema_check():
    def add(file):
        file.message_type.add(name="Speed").field.add(name="ipt", number=1, type=1, label=1)
        file.service[0].method.add(
            name="Tell",
            input_type=".fogveil.v1.WatchRequest",
            output_type=".fogveil.v1.Speed",
        )

    assert check_schema(Level.COUNT, {"fog-1": changed_methods(add)}).verdict is Verdict.FAIL


def test_an_unknown_field_fails_the_wire_check(sabotage, audited_run):
    sabotage("""
        import fogveil.provider_node.boundary as boundary
        real = boundary.WatchResponse
        boundary.WatchResponse = lambda counts: real.FromString(
            real(counts=counts).SerializeToString() + b"\\x10\\x2a"
        )
    """)
    run = audited_run()
    wire = check_wire(run)
    assert wire.verdict is Verdict.FAIL
    assert "a field that the protocol does not have" in wire.evidence
    assert check_canaries(run).verdict is Verdict.PASS


# --- leaked secrets ------------------------------------------------------------------------------


def test_a_secret_in_the_count_fails_the_count_check(sabotage, audited_run):
    sabotage("""
        import fogveil.provider_node.core as core
        work = core.ProviderCore.process_window
        def leak(self, grant):
            output = work(self, grant)
            # Never more than the true one: the agent refuses a count of jobs that it never placed.
            hidden = int(self._config.ipt) % 2 + 1
            output.counts = [max(0, count - hidden) for count in output.counts]
            return output
        core.ProviderCore.process_window = leak
    """)
    finding = check_counts(audited_run())
    assert finding.verdict is Verdict.FAIL
    assert "sent the count" in finding.evidence


def test_a_secret_in_initial_metadata_fails_the_wire_and_canary_checks(sabotage, audited_run):
    sabotage("""
        import fogveil.provider_node.boundary as boundary
        import fogveil.provider_node.process as process
        init = process.ProviderProcess.__init__
        def init_and_leak(self, *arguments):
            init(self, *arguments)
            boundary.SPEED = str(int(self._config.ipt))
        process.ProviderProcess.__init__ = init_and_leak
        watch = boundary.QueueBoundary.Watch
        class LeakingContext:
            def __init__(self, context):
                self.context = context
            def __getattr__(self, name):
                return getattr(self.context, name)
            async def send_initial_metadata(self, metadata):
                await self.context.send_initial_metadata((("x-speed", boundary.SPEED),))
        async def watch_and_leak(self, request, context):
            await watch(self, request, LeakingContext(context))
        boundary.QueueBoundary.Watch = watch_and_leak
    """)
    run = audited_run()
    assert {check(run).verdict for check in (check_wire, check_canaries)} == {Verdict.FAIL}


def test_the_scenario_in_the_agents_folder_fails_the_canary_check(monkeypatch, audited_run):
    write = Split.agent

    def write_too_much(self, clock, providers):
        path = write(self, clock, providers)
        (path.parent / "scenario.json").write_text(self._world.scenario.model_dump_json())
        return path

    monkeypatch.setattr(Split, "agent", write_too_much)
    run = audited_run()
    assert check_wire(run).verdict is Verdict.PASS
    canaries = check_canaries(run)
    assert canaries.verdict is Verdict.FAIL
    assert "scenario.json" in canaries.evidence


# --- missing access control ----------------------------------------------------------------------


def test_a_feedback_topic_open_to_the_agent_fails_the_access_check(monkeypatch):
    assert check_mqtt_access("mosquitto").verdict is Verdict.PASS
    make_table = AccessList.for_run.__func__

    def open_to_the_agent(cls, run, roster):
        access = make_table(cls, run, roster)
        agent = Identity(run, AGENT, AGENT)
        more = {*access.table[agent].subscribe, Topics(run).all_feedback(roster.sources[0])}
        access.table[agent] = access.table[agent]._replace(subscribe=frozenset(more))
        return access

    monkeypatch.setattr(AccessList, "for_run", classmethod(open_to_the_agent))
    finding = check_mqtt_access("mosquitto")
    assert finding.verdict is Verdict.FAIL
    assert "may subscribe" in finding.evidence or "may receive" in finding.evidence


def test_a_mask_used_twice_fails_the_mask_check(sabotage, audited_run):
    sabotage("""
        import fogveil.provider_node.masking as masking
        share = masking.Masks.share
        def reuse_mask(self, episode, index, count):
            if not hasattr(self, "once"):
                self.once = share(self, episode, 0, 0)
            return (self.once + count) % 2**32
        masking.Masks.share = reuse_mask
    """)
    run = audited_run("total", TOTAL_OBSERVER)
    assert check_counts(run).verdict is Verdict.PASS  # the masks still cancel
    finding = check_masks(run)
    assert finding.verdict is Verdict.FAIL
    assert "lie within" in finding.evidence


def test_an_enclosure_with_a_hole_fails_the_process_check(tmp_path, monkeypatch):
    """Without the enclosure the agent would find all of this, as in the first version."""

    def examine(folder):
        world = build_world(
            load_scenario(SCENARIOS / "tiny.toml", {"horizon": 600, "disclosure": "none"})
        )
        plan = Plan(policies=("random",), broker="builtin", speed=200.0)
        with create_testbed(world, plan, folder) as testbed:
            for name in ("fog-1", "cloud", "sources"):  # whom may these dial?
                root = Path(f"/proc/{testbed.participants[name].process.pid}/root")
                found = {path.name for path in (root / "run/fogveil").iterdir()}
                assert found == {"clock", "broker", name} - {"sources"}
            return check_process(testbed, testbed.split.users.get(AGENT))

    closed = examine(tmp_path / "closed")
    assert closed.verdict is Verdict.PASS, closed

    enclosure, start = LocalLauncher._enclosure, local_launcher.EnclosedProcess

    def with_a_hole(self, name, folder, user):
        other = folder.resolve().parent / "fog-2"
        if name != AGENT:
            return enclosure(self, name, folder, user)
        for path in (other, *other.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        return replace(enclosure(self, name, folder, user), readable=(str(other),), hidden=())

    monkeypatch.setattr(LocalLauncher, "_enclosure", with_a_hole)
    monkeypatch.setattr(
        local_launcher,
        "EnclosedProcess",
        lambda *arguments, network, **options: start(*arguments, network=False, **options),
    )
    opened = examine(tmp_path / "opened")
    assert opened.verdict is Verdict.FAIL
    text = opened.evidence + "".join(opened.details)
    assert "fog-2 can be read" in text
    assert "the kernel shows" in text
    assert "an abstract Unix socket of the launcher accepts a connection" in text
