"""The audit passes as things are, and fails as it should when the product is broken on purpose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT, SCENARIOS, Kept
from typer.testing import CliRunner

import agent.policies as policies
from broker.access import Access
from broker.topics import Topics
from fogveil.disclosure import Level
from fogveil.errors import InputError
from fogveil.identity import AGENT, Identity
from fogveil.v1 import boundary_pb2
from testbed.audit import auditing
from testbed.audit.auditing import LOOKER
from testbed.audit.canaries import seek, spellings
from testbed.audit.confinement import check_process
from testbed.audit.findings import Verdict, judge
from testbed.audit.messages import check_masks, check_schema, check_truth, check_wire
from testbed.audit.refusals import check_methods, check_topics
from testbed.audit.stage import Stage, look_at_processes, plant, secrets_of
from testbed.audit.twins import twin, twin_speeds
from testbed.cli.app import app
from testbed.embedded import simulate
from testbed.federated.launch import Testbed
from testbed.federated.split import Plan, Split
from testbed.scenario import load_scenario
from testbed.world import build_world

FOGVEIL = Path(sys.executable).parent / "fogveil"


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Let every participant run a piece of code when it starts, which breaks it."""

    def break_by(code: str) -> None:
        folder = tmp_path / "broken"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(dedent(code))
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return break_by


@pytest.fixture
def staged(tmp_path):
    """Run a short audit's testbed and return what its checks look at."""

    def stage(level: str = "count", policy: str = "jsq", during=None) -> Stage:
        chosen = load_scenario(
            SCENARIOS / "tiny.toml", {"horizon": 600, "disclosure": level, "seed": 5}
        )
        world = build_world(plant(chosen, 7))
        plan = Plan(policies=(policy,), broker="builtin", record=True)
        with Testbed(world, plan, tmp_path / "testbed", hold=True) as testbed:
            found = during(testbed, world) if during else None
            testbed.release()
            made = Stage(world, plan, tmp_path / "testbed", testbed.split)
            made.environment = look_at_processes(testbed)
            testbed.wait()
            made.said = testbed.said
        made.during = found
        return made

    return stage


def verdicts(findings):
    return {finding.promise.partition(":")[0]: finding.verdict for finding in findings}


def test_the_audit_of_tiny_passes_and_writes_a_page(tmp_path):
    page = tmp_path / "audit.html"
    done = subprocess.run(
        [FOGVEIL, "audit", SCENARIOS / "tiny.toml", "--json", "--html", page, "--horizon", "600"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout.splitlines()[-1])["findings"]
    by_promise = {found["promise"].partition(":")[0]: found["verdict"] for found in findings}
    expected = dict.fromkeys(
        ("schema", "refusals", "wire", "canaries", "truth", "non-interference"), "PASS"
    )
    expected["process"] = "PASS" if os.geteuid() == 0 else "NOT SHOWN"
    expected["timing"] = "MEASURED"
    assert by_promise == expected
    assert len(findings) == 9
    assert "No promise is broken." in page.read_text()


def test_a_healthy_testbed_passes_what_the_broken_ones_fail(staged):
    made = staged(during=check_methods)
    findings = [*check_wire(made), check_truth(made), made.during]
    assert set(verdicts(findings).values()) == {Verdict.PASS}, findings


# --- what shows nothing --------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", ["-1", "0", "nan"])
def test_a_horizon_that_is_none_is_refused(monkeypatch, horizon):
    monkeypatch.setattr(auditing, "audit", lambda *_: pytest.fail("it was brought up"))
    words = ["audit", str(SCENARIOS / "tiny.toml"), f"--horizon={horizon}"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, InputError)
    assert "tiny.toml: horizon: input should be " in str(done.exception)


def test_a_policy_that_asks_nobody_shows_nothing_of_what_providers_say(staged):
    made = staged(policy="random")
    found = verdicts([*check_wire(made), check_truth(made)])
    unshown = Verdict.NOT_SHOWN
    assert found == {"wire": unshown, "canaries": Verdict.PASS, "truth": unshown}


def test_at_level_none_it_is_shown_that_nothing_comes(staged):
    made = staged("none", "round-robin")
    wire, canaries = check_wire(made)
    assert (wire.verdict, canaries.verdict) == (Verdict.PASS, Verdict.PASS)
    assert re.fullmatch(
        r"no message came from a provider to the agent at [1-9]\d* decisions", wire.evidence
    )
    assert check_truth(made).verdict is Verdict.NOT_SHOWN


def test_what_examined_nothing_is_no_pass():
    assert judge("a promise", "0 of 0", [], 0, "nobody spoke").verdict is Verdict.NOT_SHOWN
    assert judge("a promise", "0 of 0", [], 0, "nobody spoke").evidence == "nobody spoke"
    assert judge("a promise", "1 of 1", [], 1).verdict is Verdict.PASS
    assert judge("a promise", "0 of 0", ["a fault"], 0).verdict is Verdict.FAIL


def test_the_console_has_some_of_many_faults_and_the_page_all(monkeypatch, tmp_path):
    faults = [f"fault number {number}" for number in range(1, 101)]
    monkeypatch.setattr(auditing, "audit", lambda *_: [judge("a promise", "", faults, 1)])
    words = ["audit", str(SCENARIOS / "tiny.toml"), "--html", str(tmp_path / "page.html")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "· fault number 8\n" in "".join(
        f"{line.rstrip()}\n" for line in done.stdout.splitlines()
    )
    assert "· fault number 9" not in done.stdout
    assert "and 92 more" in done.stdout
    assert "fault number 100" in (tmp_path / "page.html").read_text()
    told = CliRunner().invoke(app, [*words, "--json"]).stdout.splitlines()[-1]
    assert json.loads(told)["findings"][0]["details"] == faults


# --- a field more --------------------------------------------------------------------------------


def described(change) -> list:
    file = FileDescriptorProto()
    boundary_pb2.DESCRIPTOR.CopyToProto(file)
    change(file)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return list(pool.FindServiceByName("fogveil.v1.QueueService").methods)


def test_an_added_field_fails_the_schema():
    assert check_schema(Level.COUNT, described(lambda file: None)).verdict is Verdict.PASS

    def add(file):
        response = next(m for m in file.message_type if m.name == "WatchResponse")
        response.field.add(name="utilisation", number=2, type=1, label=1)

    found = check_schema(Level.COUNT, described(add))
    assert found.verdict is Verdict.FAIL
    assert "WatchResponse.utilisation=2:double is served and not listed" in found.details


def test_a_method_more_fails_the_schema():
    def add(file):
        file.message_type.add(name="Speed").field.add(name="ipt", number=1, type=1, label=1)
        file.service[0].method.add(
            name="Tell",
            input_type=".fogveil.v1.WatchRequest",
            output_type=".fogveil.v1.Speed",
        )

    assert check_schema(Level.COUNT, described(add)).verdict is Verdict.FAIL


def test_a_field_that_the_protocol_does_not_have_fails_the_wire(broken, staged):
    broken("""
        import provider_node.boundary as boundary
        real = boundary.WatchResponse
        boundary.WatchResponse = lambda counts: real.FromString(
            real(counts=counts).SerializeToString() + b"\\x10\\x2a"
        )
    """)
    wire, canaries = check_wire(staged())
    assert wire.verdict is Verdict.FAIL
    assert "a field that the protocol does not have" in wire.evidence
    assert canaries.verdict is Verdict.PASS


# --- secrets that travel -------------------------------------------------------------------------


def test_a_secret_in_the_count_fails_the_truth(broken, staged):
    broken("""
        import provider_node.serving as serving
        work = serving.Serving.work
        def telling(self, grant):
            output = work(self, grant)
            output.counts = [count + int(self._config.ipt) % 2 + 1 for count in output.counts]
            return output
        serving.Serving.work = telling
    """)
    found = check_truth(staged())
    assert found.verdict is Verdict.FAIL
    assert "told" in found.evidence


def test_a_secret_in_initial_metadata_fails_the_wire_and_the_canaries(broken, staged):
    broken("""
        import provider_node.boundary as boundary
        import provider_node.process as process
        made = process.ProviderProcess.__init__
        def init(self, settings, config):
            made(self, settings, config)
            boundary.SPEED = str(int(config.ipt))
        process.ProviderProcess.__init__ = init
        watch = boundary.QueueBoundary.Watch
        class Telling:
            def __init__(self, context):
                self.context = context
            def __getattr__(self, name):
                return getattr(self.context, name)
            async def send_initial_metadata(self, metadata):
                await self.context.send_initial_metadata((("x-speed", boundary.SPEED),))
        async def telling(self, request, context):
            await watch(self, request, Telling(context))
        boundary.QueueBoundary.Watch = telling
    """)
    findings = check_wire(staged())
    assert [finding.verdict for finding in findings] == [Verdict.FAIL, Verdict.FAIL]


def test_a_secret_in_a_trailer_fails_the_wire_and_the_canaries(broken, staged):
    broken("""
        import asyncio
        import provider_node.boundary as boundary
        import provider_node.process as process
        over = []
        work = process.ProviderProcess._work
        def working(self, grant):
            doing = work(self, grant)
            boundary.SPEED = str(int(self._config.ipt))
            if grant.last:
                over.append(True)
            return doing
        process.ProviderProcess._work = working
        watch = boundary.QueueBoundary.Watch
        async def telling(self, request, context):
            watching = asyncio.ensure_future(watch(self, request, context))
            while not over and not watching.done():
                await asyncio.sleep(0.01)
            watching.cancel()
            context.set_trailing_metadata((("x-speed", boundary.SPEED),))
        boundary.QueueBoundary.Watch = telling
    """)
    findings = check_wire(staged())
    assert [finding.verdict for finding in findings] == [Verdict.FAIL, Verdict.FAIL]


def test_a_secret_in_an_error_text_fails_the_refusals(broken, staged):
    broken("""
        import grpc
        import fogveil.access as access
        import provider_node.process as process
        made = process.ProviderProcess.__init__
        def init(self, settings, config):
            made(self, settings, config)
            async def refuse(_request, context):
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"not with {config.ipt}")
            access._refuse = refuse
        process.ProviderProcess.__init__ = init
    """)
    made = staged(during=check_methods)
    assert made.during.verdict is Verdict.FAIL
    assert "stands as text in the error text" in made.during.evidence


def test_the_whole_scenario_in_the_agents_folder_fails_the_canaries(monkeypatch, staged):
    write = Split.agent

    def too_much(self, clock, providers):
        path = write(self, clock, providers)
        whole = self._world.scenario.model_dump_json()
        (path.parent / "scenario.json").write_text(whole)
        return path

    monkeypatch.setattr(Split, "agent", too_much)
    wire, canaries = check_wire(staged())
    assert wire.verdict is Verdict.PASS
    assert canaries.verdict is Verdict.FAIL
    assert "scenario.json" in canaries.evidence


def test_at_level_full_what_is_disclosed_is_no_secret_and_the_seeds_are(staged):
    made = staged("full", "setr")
    wire, canaries = check_wire(made)
    assert (wire.verdict, canaries.verdict) == (Verdict.PASS, Verdict.PASS), canaries
    assert canaries.evidence.startswith("3 planted numbers")
    assert canaries.evidence.endswith("not sought: ipt and ram, which level full discloses")
    seeds = {
        "seed of fog-1 and 3 others": made.world.fogs[0].seed,
        "seed of the sources": made.world.sources.seed,
        "seed of the scenario": made.world.scenario.seed,
    }
    for name, seed in seeds.items():
        (made.split.folder_of(AGENT) / "note.txt").write_text(f"it is {seed}")
        _, canaries = check_wire(made)
        assert canaries.verdict is Verdict.FAIL
        assert f"{name} stands as text in its file note.txt" in canaries.details


# --- doors that stand open -----------------------------------------------------------------------


def test_a_method_open_to_another_provider_fails_the_refusals(broken, staged):
    broken("""
        import fogveil.access as access
        watch = "/fogveil.v1.QueueService/Watch"
        access.MAY_CALL = {**access.MAY_CALL, watch: frozenset(("agent", "provider"))}
    """)
    made = staged(during=check_methods)
    assert made.during.verdict is Verdict.FAIL
    assert any("fog-3 at /fogveil.v1.QueueService/Watch" in line for line in made.during.details)


def test_a_second_method_fails_the_refusals(broken, staged):
    broken("""
        import provider_node.process as process
        from fogveil.v1.full_pb2_grpc import add_ResourcesServiceServicer_to_server
        from provider_node.boundary import ResourcesBoundary
        made = process.ProviderProcess.__init__
        add = process.add_QueueServiceServicer_to_server
        def init(self, settings, config):
            made(self, settings, config)
            def add_both(boundary, server):
                add(boundary, server)
                add_ResourcesServiceServicer_to_server(ResourcesBoundary(self._serving), server)
            process.add_QueueServiceServicer_to_server = add_both
        process.ProviderProcess.__init__ = init
    """)
    made = staged(during=check_methods)
    assert made.during.verdict is Verdict.FAIL
    assert any("agent at /fogveil.v1.ResourcesService/Look" in line for line in made.during.details)


def test_the_feedback_topic_open_to_the_agent_fails_the_topics(monkeypatch):
    assert check_topics("mosquitto").verdict is Verdict.PASS
    table_of = Access.of.__func__

    def open_to_the_agent(cls, participants):
        access = table_of(cls, participants)
        agent = Identity(participants.run, AGENT, AGENT)
        topics = Topics(participants.run)
        more = {*access.table[agent].subscribe, topics.all_feedback(participants.sources[0])}
        access.table[agent] = access.table[agent]._replace(subscribe=frozenset(more))
        return access

    monkeypatch.setattr(Access, "of", classmethod(open_to_the_agent))
    found = check_topics("mosquitto")
    assert found.verdict is Verdict.FAIL
    assert "may subscribe" in found.evidence or "may receive" in found.evidence


def test_a_mask_used_twice_fails_the_masks(broken, staged):
    broken("""
        import provider_node.masking as masking
        share = masking.Masks.share
        def repeating(self, episode, index, count):
            if not hasattr(self, "once"):
                self.once = share(self, episode, 0, 0)
            return (self.once + count) % 2**32
        masking.Masks.share = repeating
    """)
    made = staged("total", LOOKER)
    assert check_truth(made).verdict is Verdict.PASS  # the masks still cancel
    found = check_masks(made)
    assert found.verdict is Verdict.FAIL
    assert "lie within" in found.evidence


def test_fresh_masks_pass(staged):
    made = staged("total", LOOKER)
    assert check_masks(made).verdict is Verdict.PASS
    assert check_truth(made).verdict is Verdict.PASS


@pytest.mark.skipif(os.geteuid() != 0, reason="participants have users of their own under root")
def test_a_journal_that_others_can_read_fails_the_process(staged):
    def open_a_journal(testbed, world):
        folder = testbed.split.folder_of("fog-2")
        for place in (folder, *folder.parents):
            if place == Path("/tmp"):
                break
            place.chmod(0o755)
        user = testbed.split.users[AGENT]
        healthy = check_process(testbed, user)
        folder.chmod(0o700)
        return healthy, check_process(testbed, user)

    opened, closed = staged(during=open_a_journal).during
    assert opened.verdict is Verdict.FAIL
    assert "fog-2 can be read" in opened.evidence
    assert closed.verdict is Verdict.PASS


def test_without_users_of_their_own_the_process_is_not_shown():
    assert check_process(SimpleNamespace(), None).verdict is Verdict.NOT_SHOWN


# --- the instruments themselves ------------------------------------------------------------------


def test_a_canary_is_found_however_it_is_written():
    for how, spelled in spellings(377_918_273.0).items():
        found = list(seek([("the speed", 377_918_273.0)], [("a file", b"xx" + spelled + b"yy")]))
        assert any(how in sentence for sentence in found), how
    assert not list(seek([("the speed", 377_918_273.0)], [("a file", b"377 918 273")]))


def test_planted_secrets_are_permuted_and_distinct():
    scenario = load_scenario(SCENARIOS / "paper.toml")
    world, other = build_world(plant(scenario, 1)), build_world(plant(scenario, 2))
    speeds = [fog.ipt for fog in world.fogs]
    assert len({*speeds}) == len(speeds)
    assert speeds != sorted(speeds)
    assert speeds != [fog.ipt for fog in other.fogs]
    assert world.scenario.seed.bit_length() > 100
    plain = build_world(scenario)
    times = sorted(work / fog.ipt for fog in plain.fogs for work in fog.instructions)
    planted = sorted(work / fog.ipt for fog in world.fogs for work in fog.instructions)
    assert times == pytest.approx(planted, rel=0.01)


def test_a_number_that_several_hold_is_one_canary():
    world = build_world(plant(load_scenario(SCENARIOS / "paper.toml"), 1))
    planted = secrets_of(world)
    assert len({value for _, value in planted}) == len(planted)
    # Ten nodes and the Cloud: a speed and a memory each, and one seed of them all; two seeds more.
    assert len(planted) == 11 * 2 + 1 + 2
    assert ("seed of fog-1 and 10 others", world.cloud_provider.seed) in planted
    assert len(secrets_of(world, ("ipt",))) == len(planted) - 11


@settings(max_examples=30, deadline=None)
@given(
    count=st.sampled_from(["waiting", "in_system"]),
    seed=st.integers(0, 2**32),
    ram=st.lists(st.floats(1, 1e12), min_size=6, max_size=6),
)
def test_twins_differ_in_secrets_and_in_nothing_that_an_agent_sees(
    tmp_path_factory, count, seed, ram
):
    folder = tmp_path_factory.mktemp("twin")
    one, other = twin_speeds(seed)
    assert all(max(a / b, b / a) >= 2 for a, b in zip(one, other, strict=True))
    seen = []
    for speeds, memory in ((one, ram[:3]), (other, ram[3:])):
        world = build_world(twin(folder, speeds, memory, count))
        kept = Kept()
        simulate(world, policies.load("jsq", world.agent), [kept])
        placed = [kept.table[name].tolist() for name in ("job", "node", "emitted", "arrived")]
        seen.append((placed, kept.observed.tolist()))
    assert seen[0] == seen[1]
    assert len({tuple(row) for row in seen[0][1]}) > 4
