"""Scenarios with events: shipped ones run, each event has its addressees, bad ones are refused."""

from __future__ import annotations

import json

import pytest

from fogveil.core.errors import InputError
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.report.tables import scenario_tables
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.event_text import event_text, event_texts, recorded_events
from fogveil.testbed.scenario.events import (
    CrashEvent,
    DemandEvent,
    JoinEvent,
    LeaveEvent,
    LinkEvent,
    MixEvent,
    MoveEvent,
    RateEvent,
    SpeedEvent,
)
from fogveil.testbed.scenario.load import shipped_scenarios
from fogveil.testbed.scenario.world import World, build_world
from tests.support import DATA, SCENARIOS

KINDS = (SpeedEvent, LeaveEvent, JoinEvent, CrashEvent, RateEvent, MixEvent, DemandEvent)
ALL_KINDS = {*KINDS, LinkEvent, MoveEvent}
SHIPPED = sorted(path.stem for path in (SCENARIOS / "change").glob("*.toml"))
SECRET = 4321.5
TRACE = {"columns": {"time": "TIMESTAMP"}}
SHARES = {"light": 0.25, "demanding": 0.75}


def world_of(*events: dict, scenario: str = "tiny", **overrides) -> World:
    return build_world(load_scenario(scenario, {"events": list(events), **overrides}))


def told(world: World, participant: str) -> str:
    return json.dumps(world.projection(participant))


def test_every_kind_has_a_scenario_and_the_day_has_all():
    kinds = {type(event) for name in SHIPPED for event in load_scenario(name).events}
    assert kinds == ALL_KINDS
    assert {type(event) for event in load_scenario("day").events} == ALL_KINDS
    assert (
        {"day", "upgrade", "maintenance", "rush-hour"} <= set(SHIPPED) <= set(shipped_scenarios())
    )
    jobs = {load_scenario(name).events[0].jobs for name in ("crash-lost", "crash-recovered")}
    assert jobs == {"lost", "recovered"}


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("policy", ["jsq", "ci-setr"])
def test_it_runs_and_its_events_matter(name, policy):
    scenario = load_scenario(name)
    result = run_embedded(scenario, policy)
    assert result["summary"]["workloads"] > 80
    calm = run_embedded(scenario.replace(events=[]), policy)
    assert result["run_hash"] != calm["run_hash"]
    assert recorded_events(json.loads(json.dumps(result))) == scenario.events


def test_recorded_and_lost_jobs_differ():
    one, other = (
        run_embedded(load_scenario(f"crash-{jobs}"), "jsq") for jobs in ("lost", "recovered")
    )
    assert one["run_hash"] != other["run_hash"]


# --- who is told ---------------------------------------------------------------------------------

EVERYBODY = ("agent", "sources", "clock", "fog-1", "fog-2", "fog-3", "cloud")


def test_a_secret_speed_is_told_to_its_provider_alone():
    world = world_of({"at": 5.0, "kind": "speed", "node": "fog-2", "ipt": SECRET})
    assert str(SECRET) in told(world, "fog-2")
    for participant in set(EVERYBODY) - {"fog-2"}:
        assert str(SECRET) not in told(world, participant)
        assert "777" not in told(world, participant)


@pytest.mark.parametrize(
    ("event", "those"),
    [
        ({"kind": "speed", "node": "fog-1", "factor": 1.5}, {"fog-1"}),
        ({"kind": "leave", "node": "fog-3"}, {"clock"}),
        ({"kind": "crash", "node": "fog-3", "back": 777.25}, {"fog-3", "clock"}),
        ({"kind": "rate", "scale": 45.5}, {"sources"}),
        ({"kind": "mix", "shares": SHARES}, {"sources"}),
        (
            {"kind": "demand", "application": "light", "factor": 1.5},
            {"fog-1", "fog-2", "fog-3", "cloud"},
        ),
        (
            {"kind": "link", "link": ["fog-2", "fog-3"], "bandwidth": 20},
            {"agent", "fog-1", "fog-2", "fog-3"},
        ),
        (
            {"kind": "move", "cluster": "cluster-1", "to": "fog-3"},
            {"agent", "fog-1", "fog-2", "fog-3"},
        ),
    ],
    ids=lambda value: value.get("kind") if isinstance(value, dict) else "",
)
def test_an_event_changes_what_those_are_told_whom_it_concerns(event, those):
    calm, changed = world_of(), world_of({"at": 333.25, **event})
    for participant in EVERYBODY:
        same = told(calm, participant) == told(changed, participant)
        assert same == (participant not in those), participant


def test_a_crash_is_no_secret_of_the_agent_but_when_it_ends_is_not_its_to_know():
    world = world_of({"at": 333.25, "kind": "crash", "node": "fog-3", "back": 777.25})
    assert "777.25" not in told(world, "agent")
    assert "333.25" not in told(world, "agent")
    assert "777.25" in told(world, "clock")


def test_the_agent_is_given_public_latencies_with_their_instants():
    world = world_of({"at": 333.25, "kind": "link", "link": ["fog-2", "fog-3"], "failed": True})
    changes = json.loads(told(world, "agent"))["latency_changes"]
    assert [change["at"] for change in changes] == [0.0, 333.25]
    assert changes[0]["up"] != changes[1]["up"]


# --- in words ------------------------------------------------------------------------------------


def test_events_are_listed_in_order_with_whom_they_concern():
    world = build_world(load_scenario("day"))
    table = scenario_tables(world)[-1]
    shown = list(zip(*(column.cells for column in table.columns), strict=True))
    assert ("500", "fog-1 × 2", "fog-1") in shown
    assert ("1,000", "fog-2 – fog-3 fails", "everybody") in shown
    assert any(what.startswith("fog-3 crashes, jobs lost") for _, what, _ in shown)
    times = [float(at.replace(",", "")) for at, _, _ in shown]
    assert times == sorted(times)
    assert len(shown) == len(world.scenario.events) + 2, "and two returns"
    assert len(scenario_tables(world_of())) < len(scenario_tables(world)), "no events, no table"


def test_every_event_has_words():
    for event in load_scenario("day").events:
        text = event_text(event)
        assert text.at == event.at
        assert text.what
        assert text.told
    ramp = load_scenario("rush-hour").events
    assert [text.what for text in event_texts(ramp)] == ["β → 60 until 1,000", "β → 100"]


# --- bad events ----------------------------------------------------------------------------------

CRASH = {"kind": "crash", "node": "fog-3", "back": 50.0}
LEAVE, JOIN = {"kind": "leave", "node": "fog-1"}, {"kind": "join", "node": "fog-1"}
LINK = {"kind": "link", "link": ["fog-1", "fog-2"], "failed": True}


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([{"at": 1, **LEAVE, "node": "fog-9"}], r"events.0 \(leave at 1\): no Fog node is called"),
        ([{"at": 1, "kind": "speed", "node": "fog-9", "ipt": 1}], "no provider is called 'fog-9'"),
        ([{"at": 1, **CRASH, "node": "cloud"}], "no Fog node is called 'cloud'"),
        ([{"at": 9, **LEAVE}, {"at": 5, **JOIN}], "list events in order of time"),
        ([{"at": 2000, **LEAVE}], "expected a time before the horizon, 2000"),
        ([{"at": 1, **LEAVE}, {"at": 2, **LEAVE}], "fog-1 has left at 1"),
        ([{"at": 1, **LEAVE}, {"at": 2, **JOIN}, {"at": 3, **JOIN}], "fog-1 takes jobs already"),
        ([{"at": 1, **LEAVE, "gone": 9}, {"at": 2, **JOIN}], "joins before it is gone, at 9"),
        (
            [{"at": n, **LEAVE, "node": f"fog-{n}"} for n in (1, 2, 3)],
            "from 3 on no Fog node takes jobs; keep at least one",
        ),
        ([{"at": 1, **CRASH}, {"at": 20, **CRASH}], "fog-3 has crashed and is back at 50"),
        ([{"at": 1, **LEAVE}, {"at": 20, **CRASH, "node": "fog-1"}], "fog-1 has left at 1"),
        ([{"at": 60, **CRASH}], "expected back > at"),
        ([{"at": 1, **CRASH, "notice": 5}], 'expected the key notice with jobs = "lost"'),
        ([{"at": 1, **CRASH, "jobs": "lost"}], 'expected the key notice with jobs = "lost"'),
        (
            [{"at": 1, **LINK, "link": ["cloud", "fog-1"]}],
            "it cuts off .*; leave another way",
        ),
        ([{"at": 1, **LINK, "link": ["cloud", "fog-3"]}], "cloud and fog-3 are not linked"),
        ([{"at": 1, **LINK, "link": ["cloud", "mars"]}], "no node of the network is called 'mars'"),
        (
            [{"at": 1, "kind": "mix", "shares": {"light": 0.5, "demanding": 0.6}}],
            "expected shares of light, demanding that add up to 1",
        ),
        (
            [{"at": 1, "kind": "mix", "shares": {"light": 1.0}}],
            "expected shares of light, demanding",
        ),
        ([{"at": 1, "kind": "move", "cluster": "c", "to": "fog-1"}], "no cluster is called 'c'"),
        (
            [{"at": 1, "kind": "move", "cluster": "cluster-1", "to": "cluster-2"}],
            "cluster-2 is a cluster; name a Fog node",
        ),
        (
            [{"at": 1, "kind": "demand", "application": "x", "factor": 2}],
            "no application is called",
        ),
        ([{"at": 1, "kind": "demand", "application": "light"}], "one of the keys instructions and"),
        ([{"at": 1, "kind": "speed", "node": "fog-1"}], "expected one of the keys ipt and factor"),
        ([{"at": 1, "kind": "rate", "scale": 9, "until": 1}], "expected until > at, with scale"),
        ([{"at": 1, "kind": "rate", "scales": [9, 8]}], "the keys scales and period together"),
        ([{"at": 1, "kind": "link", "link": ["fog-1", "fog-2"]}], "expected at least one of the"),
        ([{"at": 1, "kind": "spede", "node": "fog-1"}], "spede"),
    ],
)
def test_a_bad_event_is_refused_with_one_sentence(events, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        world_of(*events)
    assert "\n" not in str(error.value)


def test_at_level_total_too_few_members_and_lost_jobs_are_refused():
    away = [{"at": n, **LEAVE, "node": f"fog-{n}", "gone": n + 0.5} for n in (1, 2)]
    with pytest.raises(InputError, match="only 2 providers add up to the total"):
        world_of(*away, disclosure="total")
    lost = {"at": 1, **CRASH, "jobs": "lost", "notice": 5}
    with pytest.raises(InputError, match="at level total jobs cannot be lost"):
        world_of(lost, disclosure="total")


def test_a_trace_keeps_its_own_rates():
    sources = {"kind": "trace", "file": str(DATA / "requests.csv")} | TRACE
    for event in ({"kind": "rate", "scale": 9}, {"kind": "mix", "shares": SHARES}):
        with pytest.raises(InputError, match="a trace has its own arrivals; edit the trace"):
            world_of({"at": 1, **event}, sources=sources)
