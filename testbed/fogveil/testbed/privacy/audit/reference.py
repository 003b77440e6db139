"""The reference: what every participant of a run must send to whom, computed by the auditor.

The embedded engine computes the decisions and the run hash. The participants' cores, run here
without transport, say which messages follow from them. Who sends what to whom in which order does
not depend on the speed of any participant, so the reference holds for every correct run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import fogveil.agent.policies as policies
from fogveil.agent.episode import plan_windows
from fogveil.agent.visibility import Visibility
from fogveil.broker.topics import Topics
from fogveil.clock.core import Windows
from fogveil.core.disclosure import Level
from fogveil.core.randomness import drawn
from fogveil.protocol.channels import PROTOCOL
from fogveil.protocol.identity import AGENT, CLOCK
from fogveil.protocol.message_order import chunks
from fogveil.provider_node.core import ProviderCore
from fogveil.sources.core import EmissionBuffer, demand_factors, emissions
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.launch.participant_config import Plan, roster
from fogveil.testbed.launch.policy_requirements import requirements_of
from fogveil.testbed.records.join import COLUMNS, Decisions, Floats
from fogveil.testbed.scenario.world import World
from fogveil.v1.boundary_pb2 import WatchRequest, WatchResponse
from fogveil.v1.clock_pb2 import (
    AgentDone,
    AgentReady,
    Begin,
    End,
    Grant,
    Hello,
    JoinRequest,
    JoinResponse,
    ProviderDone,
    ProviderReady,
    SourcesDone,
)
from fogveil.v1.full_pb2 import LookRequest
from fogveil.v1.total_pb2 import TotalServiceWatchRequest
from fogveil.v1.workload_pb2 import Placement, Placements, Workload, Workloads

JOIN = "/fogveil.v1.ClockService/Join"
WATCH = "/fogveil.v1.QueueService/Watch"
WATCH_TOTAL = "/fogveil.v1.TotalService/Watch"
LOOK = "/fogveil.v1.ResourcesService/Look"

Flow = tuple[str, str, str]
"""Sender, receiver, and the gRPC method."""


@dataclass
class Reference:
    """All messages of a run, serialised, in the order in which their sender sends them."""

    run: str
    hashes: list[str] = field(default_factory=list)
    """The run hash of each episode."""
    grpc: dict[Flow, list[bytes]] = field(default_factory=dict)
    """At level `total` without the shares, which nobody can predict."""
    published: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    """By sender and topic; without the keys of level `total`."""
    counts: dict[str, list[list[int]]] = field(default_factory=dict)
    """What each provider counts, window by window, at the instants at which it is asked."""
    decisions: int = 0

    def says(self, sender: str, receiver: str, method: str, message: Any) -> None:
        """Add a gRPC message."""
        flow = sender, receiver, method
        self.grpc.setdefault(flow, []).append(message.SerializeToString())

    def publishes(self, sender: str, topic: str, message: Any) -> None:
        """Add an MQTT message."""
        self.published.setdefault((sender, topic), []).append(message.SerializeToString())


class _Nodes:
    """A sink that keeps where each job was placed."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}

    def take(self, rows: Floats, decisions: Decisions) -> None:  # noqa: ARG002 (a sink's)
        job, node = COLUMNS.index("job"), COLUMNS.index("node")
        self.of.update((int(row[job]), int(row[node])) for row in rows)


class Behaviour(NamedTuple):
    """What an agent does in one episode."""

    needs: Level
    ready: AgentReady
    nodes: dict[int, int]
    """The node of each job."""


def is_computable(spec: str) -> bool:
    """Return whether the auditor may run a policy: ours, and those of the audit itself."""
    path = policies.file_of(spec)
    return not policies.is_foreign(spec) or (
        path is not None and path.absolute().parent == Path(__file__).parent
    )


def compute_reference(
    world: World, plan: Plan, run: str, observed: Sequence[Behaviour] | None = None
) -> Reference:
    """Compute what a run of this plan must send.

    `observed` is what the agent did under a policy that the auditor does not run: then the others
    are judged by what follows from it, and there is no run hash.
    """
    reference = Reference(run)
    behaviours = list(observed or ())
    if observed is None:
        for spec, draw in plan.episodes:
            episode_world, kept, kind = world.drawn(draw), _Nodes(), policies.find(spec)
            policy = policies.load(spec, episode_world.agent)
            reference.hashes.append(simulate(episode_world, policy, [kept]))
            visibility = Visibility(kind.needs, watches_cloud=kind.watches_cloud)
            ready = plan_windows(visibility, plan.window, ahead=kind.decides_ahead)
            behaviours.append(Behaviour(kind.needs, ready, kept.of))
    _Replay(world, plan, reference, behaviours).run()
    return reference


def observe_agent(
    world: World, plan: Plan, declared: Iterable[bytes], placed: Sequence[Iterable[bytes]]
) -> list[Behaviour]:
    """Return what an agent did, by its messages to the clock and its placements on each node."""
    messages = [JoinRequest.FromString(payload) for payload in declared]
    readies = [message.agent_ready for message in messages if message.HasField("agent_ready")]
    nodes: list[dict[int, int]] = [{} for _ in plan.episodes]
    for node, payloads in enumerate(placed):
        for message in map(Placements.FromString, payloads):
            nodes[message.episode].update((each.job, node) for each in message.placements)
    return [
        Behaviour(requirements_of(spec, world).needs, ready, where)
        for (spec, _), ready, where in zip(plan.episodes, readies, nodes, strict=True)
    ]


class _Replay:
    """All participants' cores, joined by direct calls."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        reference: Reference,
        behaviours: Sequence[Behaviour],
    ) -> None:
        self.world, self.plan, self.reference = world, plan, reference
        self.behaviours = behaviours
        self.topics = Topics(reference.run)
        self.roster = roster(world, plan.source_processes)
        sources = self.roster.sources
        owners = tuple(sources[c % len(sources)] for c in range(len(world.clusters)))
        self.agent = _Agent(self)
        self.providers = {
            name: _Provider(self, name, owners) for name in (*self.roster.fogs, self.roster.cloud)
        }
        self.participants: dict[str, _Agent | _Provider | _Sources] = {
            AGENT: self.agent,
            **self.providers,
            **{
                name: _Sources(self, name, [c for c, own in enumerate(owners) if own == name])
                for name in sources
            },
        }

    def run(self) -> None:
        """Let the clock and the participants exchange messages until the run is over."""
        for name in self.roster.all:
            hello = Hello(name=name, protocol=PROTOCOL, run=self.reference.run)
            self.reference.says(name, CLOCK, JOIN, JoinRequest(hello=hello))
        windows = Windows(self.roster, [draw for _, draw in self.plan.episodes])
        orders = deque(windows.begin())
        while orders:
            name, order = orders.popleft()
            self.reference.says(CLOCK, name, JOIN, order)
            for answer in self.participants[name].handle(order):
                self.reference.says(name, CLOCK, JOIN, answer)
                orders += windows.handle(name, answer)
        assert windows.finished
        self.reference.decisions = windows.decisions
        for name in self.roster.all:
            self.reference.says(CLOCK, name, JOIN, JoinResponse(end=End()))


class _Sources:
    def __init__(self, replay: _Replay, name: str, clusters: Iterable[int]) -> None:
        self._replay, self._name, self._clusters = replay, name, clusters
        self._config = replay.world.sources
        self._demands = demand_factors(self._config)

    def handle(self, order: JoinResponse) -> list[JoinRequest]:
        if order.HasField("begin"):
            self._begin(order.begin)
        elif not order.grant.last:
            self._publish(order.grant)
        done = SourcesDone(next=self._buffer.announce(), complete=self._buffer.complete)
        return [JoinRequest(sources_done=done)]

    def _begin(self, begin: Begin) -> None:
        config = replace(self._config, seed=drawn(self._config.seed, begin.draw))
        self._buffer = EmissionBuffer(emissions(config, self._clusters))
        self._episode, self._sequence = begin.episode, 0

    def _publish(self, grant: Grant) -> None:
        workloads = [
            Workload(
                job=job,
                cluster=cluster,
                category=category,
                emitted=emitted,
                demand=self._demands[job] if self._demands else None,
            )
            for emitted, job, cluster, category in self._buffer.take(grant.until)
        ]
        for chunk, _ in chunks(workloads):
            self._sequence += 1
            message = Workloads(episode=self._episode, sequence=self._sequence, workloads=chunk)
            topic = self._replay.topics.workload(self._name)
            self._replay.reference.publishes(self._name, topic, message)
            for workload in chunk:
                self._replay.agent.receive(workload)


class _Agent:
    def __init__(self, replay: _Replay) -> None:
        self._replay, self._view = replay, replay.world.agent
        self._waiting: list[tuple[float, int, Workload]] = []
        self._watched: set[str] = set()

    def receive(self, workload: Workload) -> None:
        heappush(self._waiting, (workload.emitted, workload.job, workload))

    def handle(self, order: JoinResponse) -> list[JoinRequest]:
        if order.HasField("begin"):
            return [self._begin(order.begin)]
        if order.grant.last:
            return [JoinRequest(agent_done=AgentDone())]
        return [self._decide(order.grant)]

    def _begin(self, begin: Begin) -> JoinRequest:
        replay = self._replay
        self._behaviour = behaviour = replay.behaviours[begin.episode]
        self._waiting = []
        self._episode, self._sent = begin.episode, [0] * len(self._view.nodes)
        self._looks = behaviour.needs is Level.FULL
        watched = () if behaviour.needs is Level.NONE else self._view.nodes
        watched += (self._view.cloud,) if behaviour.ready.cloud else ()
        total = self._view.disclosed is Level.TOTAL
        for name in watched:
            if name not in self._watched:
                self._watched.add(name)
                method = WATCH_TOTAL if total else WATCH
                request = TotalServiceWatchRequest() if total else WatchRequest()
                replay.reference.says(AGENT, name, method, request)
        return JoinRequest(agent_ready=behaviour.ready)

    def _decide(self, grant: Grant) -> JoinRequest:
        replay, view = self._replay, self._view
        batches: dict[int, list[Placement]] = {}
        for _, _, workload in [heappop(self._waiting) for _ in grant.observe_at]:
            if self._looks:
                self._look(workload)
            demand = workload.demand if workload.HasField("demand") else None
            node = self._behaviour.nodes[workload.job]
            placement = Placement(
                job=workload.job,
                cluster=workload.cluster,
                category=workload.category,
                arrival=workload.emitted + view.up[workload.cluster][workload.category][node],
                demand=demand,
            )
            batches.setdefault(node, []).append(placement)
        placed = [0] * len(view.nodes)
        for node, batch in batches.items():
            placed[node] = len(batch)
            self._sent[node] += 1
            message = Placements(episode=self._episode, sequence=self._sent[node], placements=batch)
            name = view.nodes[node]
            replay.reference.publishes(AGENT, replay.topics.placement(name), message)
            replay.providers[name].core.accept(message.placements)
        return JoinRequest(agent_done=AgentDone(placed=placed))

    def _look(self, workload: Workload) -> None:
        demand = workload.demand if workload.HasField("demand") else None
        request = LookRequest(job=workload.job, category=workload.category, demand=demand)
        for name in self._view.nodes:
            self._replay.reference.says(AGENT, name, LOOK, request)
            self._replay.providers[name].answer(request)


class _Provider:
    def __init__(self, replay: _Replay, name: str, owners: tuple[str, ...]) -> None:
        self._replay, self._name = replay, name
        self.core = ProviderCore(replay.world.provider(name), owners, pads=replay.plan.pads)
        self._masked = replay.world.agent.disclosed is Level.TOTAL

    def handle(self, order: JoinResponse) -> list[JoinRequest]:
        if order.HasField("begin"):
            self.core.begin(order.begin.episode, order.begin.draw)
            return [JoinRequest(provider_ready=ProviderReady())]
        self._process(order.grant)
        return [JoinRequest(provider_done=ProviderDone())] if order.grant.flush else []

    def _process(self, grant: Grant) -> None:
        replay, name, topics = self._replay, self._name, self._replay.topics
        output = self.core.process_window(grant)
        if output.counts:
            replay.reference.counts.setdefault(name, []).append(output.counts)
            if not self._masked:
                replay.reference.says(name, AGENT, WATCH, WatchResponse(counts=output.counts))
        cloud = replay.providers[replay.roster.cloud]
        for aggregates in output.aggregates:
            replay.reference.publishes(name, topics.aggregate(name), aggregates)
            cloud.core.accept_aggregates(aggregates, name)
        for owner, messages in output.feedback.items():
            for feedback in messages:
                replay.reference.publishes(name, topics.feedback(owner, name), feedback)

    def answer(self, request: LookRequest) -> None:
        """Answer a look of level `full`."""
        answer = self.core.answer_look(request, self.core.view())
        self._replay.reference.says(self._name, AGENT, LOOK, answer)
