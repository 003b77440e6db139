"""The events of a scenario by whom they concern: providers, sources, members, everybody's paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, cast

import networkx as nx

from fogveil.core.errors import InputError
from fogveil.core.membership import Membership, MembershipChange
from fogveil.provider_node.timetable import Change
from fogveil.sources.pace import PaceChange
from fogveil.testbed.scenario.events import (
    AnyEvent,
    CrashEvent,
    DemandEvent,
    Event,
    JoinEvent,
    LeaveEvent,
    LinkEvent,
    MixEvent,
    MoveEvent,
    RateEvent,
    SpeedEvent,
)
from fogveil.testbed.scenario.graph_files import node_labels
from fogveil.testbed.scenario.models import Scenario
from fogveil.testbed.scenario.topology import Topology

SMALLEST_SUM = 3
"""Members of a total, the Cloud among them."""


@dataclass
class EventPlan:
    """What the events of a scenario mean for each participant."""

    providers: dict[str, list[Change]]
    """By name, the Cloud included."""
    sources: list[PaceChange] = field(default_factory=list)
    members: list[MembershipChange] = field(default_factory=list)
    networks: list[tuple[float, nx.Graph]] = field(default_factory=list)
    """The graph from an instant on, for each at which it changes."""


def plan_events(
    scenario: Scenario, topology: Topology, speeds: dict[str, float], categories: Sequence[str]
) -> EventPlan:
    """Check the events of a scenario and return what they mean; `speeds` are those at the start."""
    plan = EventPlan({name: [] for name in speeds})
    previous = 0.0
    for number, event in enumerate(scenario.events):
        _check_time(number, event, previous, scenario.horizon)
        previous = event.at
    _plan_providers(scenario, plan, dict(speeds), categories)
    _plan_members(scenario, plan, topology)
    _plan_sources(scenario, plan, categories)
    _plan_networks(scenario, plan, topology)
    return plan


def _fault(number: int, event: Event, what: str) -> InputError:
    kind = cast(AnyEvent, event).kind
    return InputError(f"events.{number} ({kind} at {event.at:g}): {what}")


def _check_time(number: int, event: Event, previous: float, horizon: float) -> None:
    if event.at < previous:
        raise _fault(
            number, event, f"the event before it is at {previous:g}; list events in order of time"
        )
    if not event.at < horizon:
        raise _fault(number, event, f"expected a time before the horizon, {horizon:g}")


def _known(number: int, event: Event, name: str, names: Sequence[str], what: str) -> int:
    if name not in names:
        raise _fault(
            number, event, f"no {what} is called {name!r}: expected one of {', '.join(names)}"
        )
    return names.index(name)


# --- providers -----------------------------------------------------------------------------------


def _plan_providers(
    scenario: Scenario, plan: EventPlan, speeds: dict[str, float], categories: Sequence[str]
) -> None:
    work = [application.instructions for application in scenario.applications]
    for number, event in enumerate(scenario.events):
        match event:
            case SpeedEvent():
                _known(number, event, event.node, list(speeds), "provider")
                speeds[event.node] = event.ipt or speeds[event.node] * cast(float, event.factor)
                plan.providers[event.node].append(Change(event.at, ipt=speeds[event.node]))
            case DemandEvent():
                place = _known(number, event, event.application, categories, "application")
                work[place] = event.instructions or work[place] * cast(float, event.factor)
                for changes in plan.providers.values():
                    changes.append(Change(event.at, instructions=tuple(work)))
            case CrashEvent():
                fogs = list(speeds)[:-1]
                _known(number, event, event.node, fogs, "Fog node")
                if scenario.disclosure == "total" and event.notice is not None:
                    raise _fault(
                        number,
                        event,
                        "at level total jobs cannot be lost: those emitted again would tell the "
                        'agent what one node held; use jobs = "recovered"',
                    )
                crash = Change(event.at, back=event.back, notice=event.notice)
                plan.providers[event.node].append(crash)


# --- members -------------------------------------------------------------------------------------


def _plan_members(scenario: Scenario, plan: EventPlan, topology: Topology) -> None:
    fogs = [topology.names[node] for node in topology.fogs]
    # Until when a node is as its last event left it; None: it takes jobs.
    away: dict[str, str] = {}
    silent_from: dict[str, float] = {}
    busy_until: dict[str, float] = {}
    for name in _absent_at_first(scenario):
        if name in fogs:
            away[name], silent_from[name] = "has not joined yet", 0.0
            plan.members.append(MembershipChange(0.0, fogs.index(name), takes=False, tells=False))
    for number, event in enumerate(scenario.events):
        if not isinstance(event, LeaveEvent | JoinEvent | CrashEvent):
            continue
        node, at = _known(number, event, event.node, fogs, "Fog node"), event.at
        if at < busy_until.get(event.node, 0.0):
            raise _fault(
                number, event, f"{event.node} has crashed and is back at {busy_until[event.node]:g}"
            )
        if isinstance(event, JoinEvent):
            if event.node not in away:
                raise _fault(number, event, f"{event.node} takes jobs already")
            if at < silent_from.get(event.node, 0.0) < inf:
                raise _fault(
                    number,
                    event,
                    f"{event.node} joins before it is gone, at {silent_from[event.node]:g}",
                )
            del away[event.node]
            plan.members.append(MembershipChange(at, node, takes=True, tells=True))
            continue
        if event.node in away:
            raise _fault(number, event, f"{event.node} {away[event.node]}")
        if isinstance(event, CrashEvent):
            busy_until[event.node] = event.back
            plan.members += [
                MembershipChange(
                    at, node, takes=False, tells=False, crash=True, notice=event.notice
                ),
                MembershipChange(event.back, node, takes=True, tells=True),
            ]
            continue
        away[event.node] = f"has left at {at:g}"
        silent_from[event.node] = inf if event.gone is None else event.gone
        plan.members.append(MembershipChange(at, node, takes=False, tells=True))
        if event.gone is not None:
            plan.members.append(MembershipChange(event.gone, node, takes=False, tells=False))
    plan.members.sort(key=lambda change: change.at)
    _check_members(scenario, plan.members, len(fogs))


def _absent_at_first(scenario: Scenario) -> list[str]:
    first: dict[str, Event] = {}
    for event in scenario.events:
        if isinstance(event, LeaveEvent | JoinEvent | CrashEvent):
            first.setdefault(event.node, event)
    return [name for name, event in first.items() if isinstance(event, JoinEvent)]


def _check_members(scenario: Scenario, changes: Sequence[MembershipChange], nodes: int) -> None:
    membership = Membership(nodes, changes)
    while (at := membership.next_change) < inf:
        membership.advance(at)
        if membership.available == ():
            raise InputError(f"events: from {at:g} on no Fog node takes jobs; keep at least one")
        telling = nodes - len(membership.silent) + 1
        if scenario.disclosure == "total" and telling < SMALLEST_SUM:
            raise InputError(
                f"events: from {at:g} on only {telling} providers add up to the total, which would "
                f"show their counts: expected at least {SMALLEST_SUM}, the Cloud among them"
            )


# --- sources -------------------------------------------------------------------------------------


def _plan_sources(scenario: Scenario, plan: EventPlan, categories: Sequence[str]) -> None:
    for number, event in enumerate(scenario.events):
        if not isinstance(event, RateEvent | MixEvent):
            continue
        if scenario.sources.kind == "trace":
            raise _fault(number, event, "a trace has its own arrivals; edit the trace instead")
        if isinstance(event, RateEvent):
            period = inf if event.period is None else event.period
            plan.sources.append(
                PaceChange(event.at, event.scale, event.until, tuple(event.scales or ()), period)
            )
            continue
        if set(event.shares) != set(categories) or abs(sum(event.shares.values()) - 1) > SLACK:
            raise _fault(
                number,
                event,
                f"expected shares of {', '.join(categories)} that add up to 1, got "
                + ", ".join(f"{name} = {share:g}" for name, share in event.shares.items()),
            )
        shares = tuple(event.shares[name] for name in categories)
        plan.sources.append(PaceChange(event.at, shares=shares))


SLACK = 1e-9
"""By which the sum of shares may miss 1."""


# --- the network ---------------------------------------------------------------------------------


def _plan_networks(scenario: Scenario, plan: EventPlan, topology: Topology) -> None:
    network = _Network(topology)
    for number, event in enumerate(scenario.events):
        if not isinstance(event, LinkEvent | MoveEvent):
            continue

        def fail(what: str, number: int = number, event: Event = event) -> InputError:
            return _fault(number, event, what)

        if isinstance(event, LinkEvent):
            network.change(event, fail)
        else:
            network.move(event, fail)
        if plan.networks and plan.networks[-1][0] == event.at:
            plan.networks.pop()
        plan.networks.append((event.at, network.usable(fail)))


class _Network:
    """The graph as its links change."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._graph = topology.graph.copy()
        self._failed: set[frozenset[Any]] = set()
        labels = node_labels(topology.graph)
        self._by_name = {label: node for node, label in labels.items()}
        self._by_name |= {str(node): node for node in topology.graph}
        self._by_name |= {name: node for node, name in topology.names.items()}

    def _node(self, name: str, fail: Callable[[str], InputError]) -> Any:
        if name not in self._by_name:
            raise fail(f"no node of the network is called {name!r}")
        return self._by_name[name]

    def change(self, event: LinkEvent, fail: Callable[[str], InputError]) -> None:
        """Change the properties of a link."""
        one, other = (self._node(name, fail) for name in event.link)
        if not self._graph.has_edge(one, other):
            raise fail(f"{event.link[0]} and {event.link[1]} are not linked")
        link = self._graph.edges[one, other]
        values = {"bandwidth": event.bandwidth, "propagation": event.propagation}
        link.update({key: value for key, value in values.items() if value is not None})
        if event.failed is not None:
            change = self._failed.add if event.failed else self._failed.discard
            change(frozenset((one, other)))

    def move(self, event: MoveEvent, fail: Callable[[str], InputError]) -> None:
        """Let a cluster's link lead to another node."""
        clusters = {self._topology.names[node]: node for node in self._topology.clusters}
        if event.cluster not in clusters:
            raise fail(
                f"no cluster is called {event.cluster!r}: expected one of {', '.join(clusters)}"
            )
        cluster, to = clusters[event.cluster], self._node(event.to, fail)
        links = list(self._graph.edges(cluster, data=True))
        if len(links) != 1:
            raise fail(f"{event.cluster} has {len(links)} links; only one that has one can move")
        if to in self._topology.clusters:
            raise fail(f"{event.to} is a cluster; name a Fog node, the Cloud or a relay")
        _, before, link = links[0]
        self._graph.remove_edge(cluster, before)
        self._failed.discard(frozenset((cluster, before)))
        self._graph.add_edge(cluster, to, **link)

    def usable(self, fail: Callable[[str], InputError]) -> nx.Graph:
        """Return the graph without failed links; refuse one that cuts somebody off."""
        graph = self._graph.copy()
        graph.remove_edges_from(tuple(link) for link in self._failed)
        reached = nx.node_connected_component(graph, self._topology.cloud)
        cut_off = [name for node, name in self._topology.names.items() if node not in reached]
        if cut_off:
            raise fail(f"it cuts off {', '.join(cut_off)}; leave another way")
        return graph
