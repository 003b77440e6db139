"""The agent's process: workloads and counts in, placements out; it may learn on the way."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import replace
from typing import Any

import agent.policies as policies
from agent.adding import Adding
from agent.deciding import Deciding, Inbox, Seen
from agent.policy import AgentView, Policy
from agent.record import Record
from agent.watching import Watching
from broker.client import Relay
from broker.topics import Topics
from fogveil.clock_seat import ClockSeat, join_clock
from fogveil.disclosure import CountKind, Level
from fogveil.ordering import Sequence, Tally, decode
from fogveil.participant import first_of, listen, report
from fogveil.randomness import drawn
from fogveil.settings import Settings, tuples
from fogveil.v1.clock_pb2 import (
    LOOK_AFTER,
    LOOK_BEFORE,
    LOOK_NEVER,
    AgentDone,
    AgentReady,
    Begin,
    Grant,
    JoinRequest,
)
from fogveil.v1.workload_pb2 import Placement, Placements, Workload, Workloads

log = logging.getLogger("agent")

WINDOW = 64
"""Decisions taken ahead where nothing else limits them."""
WINDOWS_OPEN = 2
"""So many windows the agent may be ahead of the counts that it will be told."""
REPORT_EVERY = 0.25
"""Seconds."""


async def serve(settings: Settings) -> None:
    """Place workloads as the central agent of a federated testbed, and learn if asked to."""
    with settings.reading():
        process = AgentProcess(settings, agent_view(settings.own["view"]))
    async with (
        join_clock(settings, process.recording) as seat,
        Relay.of(settings) as relay,
    ):
        process.relay = relay
        await relay.subscribe(Topics(settings.run).all_workloads)
        await first_of(
            process.follow(seat),
            seat.hear(),
            process.watching.lost(),
            listen(relay, process.receive, process.recording),
            farewell=seat.leave,
        )
        await relay.drained()


def prepare(settings: Settings) -> None:
    """Load what the episodes will need; nobody else's code runs before we are the agent's user."""
    view = agent_view(settings.own["view"])
    for spec in dict.fromkeys(settings.own["plan"]):
        if policies.is_foreign(spec):
            path, _ = policies.code_of(_here(settings, spec))
            policies.import_libraries(policies.read_source(path))
        else:
            policies.load(_here(settings, spec), view)
    if settings.own["train"]:
        from agent.learning import adam, ddqn, network

        del adam, ddqn, network


def _here(settings: Settings, spec: str) -> str:
    """Return where a policy is that came with a file of its own: in the agent's folder."""
    return spec if policies.file_of(spec) is None else str(settings.folder / spec)


def agent_view(plain: dict[str, Any]) -> AgentView:
    """Read the agent's share of the scenario."""
    given = {key: tuples(value) for key, value in plain.items()}
    given["disclosed"] = Level.parse(given["disclosed"])
    given["count"] = CountKind(given["count"])
    return AgentView(**given)


class AgentProcess:
    """Carries messages between the transports and `Deciding`."""

    relay: Relay

    def __init__(self, settings: Settings, view: AgentView) -> None:
        own = settings.own
        self._settings, self._view = settings, view
        self._topics = Topics(settings.run)
        self._plan: list[str] = own["plan"]
        self._window_asked: int = own["window"]
        """Decisions per window; 1 is lockstep, 0 lets the policy's nature decide."""
        self._host = _Training(view, own["train"], settings) if own["train"] else None
        self._now = 0.0
        self.recording = settings.recording(lambda: self._now)
        self.watching = Watching(settings, view, own["providers"], self.recording)
        self._inbox = Inbox(view)
        self._workloads = {name: Sequence(name) for name in own["sources"]}
        self._emitted = {name: Tally("workload", name) for name in own["sources"]}
        self._record: Record | None = None
        self._decisions = 0
        self._queued: int | None = None
        self._reported = 0.0

    # --- what comes over MQTT --------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes) -> None:
        """Take workloads in."""
        sender = self._topics.publisher(topic)
        if sender not in self._workloads:
            log.warning("dropped a message to %s, where nobody emits workloads", topic)
            return
        message = decode(Workloads, payload, sender)
        if message is None:
            return
        for due in self._workloads[sender].take(message.episode, message.sequence, message):
            self._emitted[sender].add(sum(map(self._inbox.add, due.workloads)))

    # --- what the clock orders -------------------------------------------------------------------

    async def follow(self, seat: ClockSeat) -> None:
        """Do what the clock orders until the run ends."""
        try:
            async for order in seat.orders():
                if order.WhichOneof("kind") == "begin":
                    seat.say(agent_ready=await self._begin(order.begin))
                elif order.grant.last:
                    await self._catch_up(0)
                    seat.say(agent_done=AgentDone(enough=self._end()))
                else:
                    done = AgentDone(placed=await self._decide(order.grant))
                    await seat.tell(JoinRequest(agent_done=done))
                    assert self._record is not None
                    self._record.flush()
                    self._tell_status()
        finally:
            if self._record:
                self._record.close()
            if self.recording:
                self.recording.close()

    async def _begin(self, begin: Begin) -> AgentReady:
        self._inbox.reset()
        for name, inbox in self._workloads.items():
            inbox.begin(begin.episode)
            self._emitted[name].reset()
        if self._record:
            self._record.close()
        self._record = Record(self._settings.folder, begin.episode)
        self._episode = begin.episode
        self._sent = [0] * len(self._view.nodes)
        """Messages to each provider in this episode."""
        policy = self._policy(begin)
        self._deciding = deciding = Deciding(self._view, policy, self._record.add)
        self._open_windows: deque[int] = deque()
        self._adding = Adding()
        self._watched = (
            () if deciding.needs is Level.NONE else (*self._view.nodes, self._view.cloud)
        )
        if not deciding.watches_cloud:
            self._watched = self._watched[: len(self._view.nodes)]
        await self.watching.open(self._watched)
        return self._readiness()

    def _policy(self, begin: Begin) -> Policy:
        if self._host:
            self._host.begin()
            return self._host.agent
        view = self._view
        # A run's own chance is that of its draw, as in the embedded engine.
        view = replace(view, seed=drawn(view.seed, begin.draw))
        return policies.load(_here(self._settings, self._plan[begin.episode]), view)

    def _readiness(self) -> AgentReady:
        deciding, asked = self._deciding, self._window_asked
        cloud = deciding.watches_cloud
        if deciding.needs is Level.NONE:
            look = LOOK_NEVER
        elif deciding.ahead and asked != 1 and deciding.needs is not Level.FULL:
            look = LOOK_AFTER  # what level full adds is told of the moment only
        else:
            look = LOOK_BEFORE
        self._look = look
        window = 1 if look == LOOK_BEFORE else asked or WINDOW
        first = window
        if look == LOOK_AFTER and self._host and not asked:
            # A window never crosses a change of the weights.
            first, between = self._host.agent.ahead()
            window = between or window
            first = first % window or window
        return AgentReady(look=look, cloud=cloud, first_window=first, window=window)

    async def _decide(self, grant: Grant) -> list[int]:
        self._now = grant.until
        for tally, expected in zip(self._emitted.values(), grant.expect, strict=True):
            await tally.reach(expected)
        workloads = self._inbox.take(len(grant.observe_at))
        rows: list[Seen | None] = [None] * len(workloads)
        if self._look == LOOK_BEFORE:
            rows = [*await self._seen(workloads)]
        elif self._look == LOOK_AFTER:
            await self._catch_up(0 if self._host else WINDOWS_OPEN)
            self._open_windows.append(len(workloads))
        batches: dict[int, list[Placement]] = {}
        for workload, seen in zip(workloads, rows, strict=True):
            node, placement = self._deciding.place(workload, seen)
            batches.setdefault(node, []).append(placement)
        placed = [0] * len(self._view.nodes)
        for node, batch in batches.items():
            placed[node] = len(batch)
            self._sent[node] += 1
            message = Placements(episode=self._episode, sequence=self._sent[node], placements=batch)
            topic = self._topics.placement(self._view.nodes[node])
            self.relay.publish(topic, message.SerializeToString())
        self._decisions += len(workloads)
        return placed

    async def _seen(self, workloads: list[Workload]) -> list[Seen]:
        rows = await self._next_rows(len(workloads))
        if self._deciding.needs is Level.FULL:
            loads = [await self.watching.load(self._view.nodes, each) for each in workloads]
            rows = [row._replace(load=load) for row, load in zip(rows, loads, strict=True)]
        return rows

    async def _next_rows(self, size: int) -> list[Seen]:
        fogs = len(self._view.nodes)
        rows = await self.watching.window(self._watched, size)
        if self._view.disclosed is Level.TOTAL:
            totals = self._adding.totals(rows)
            self._queued = totals[-1]
            return [Seen(total=total) for total in totals]
        self._queued = sum(rows[-1])
        return [Seen(row[:fogs], row[fogs] if len(row) > fogs else None) for row in rows]

    async def _catch_up(self, most: int) -> None:
        """Take in the counts of windows decided ahead, until at most so many are open."""
        if self._look != LOOK_AFTER:
            return
        while len(self._open_windows) > most:
            self._deciding.learn(await self._next_rows(self._open_windows.popleft()))

    def _end(self) -> bool:
        """Close the episode; return whether the agent wants no other."""
        assert self._record is not None
        self._record.close()
        self._tell_status(now=True)
        return self._host.end() if self._host else False

    def _tell_status(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._reported > REPORT_EVERY:
            self._reported = time.monotonic()
            more = self._host.status() if self._host else {}
            report(agent={"decisions": self._decisions, "queued": self._queued, **more})


class _Training:
    """An agent in training, with its checkpoints in the agent's own folder."""

    def __init__(self, view: AgentView, given: dict[str, Any], settings: Settings) -> None:
        from agent.learning.hyperparameters import Hyperparameters
        from agent.trainee import Trainee

        hyperparameters = Hyperparameters(**given["hyperparameters"])
        self._trainee = Trainee(view, given["agent"], hyperparameters, settings.folder)
        self._trainee.resume()
        self._every: int = given["every"]
        self.agent = self._trainee.agent

    def begin(self) -> None:
        """Begin an episode."""
        self._trainee.begin()

    def end(self) -> bool:
        """Tell what the episode came to, save, and return whether the training is over."""
        figures = self._trainee.end()
        finished = self._trainee.finished
        if finished or self._trainee.episodes % self._every == 0:
            self._trainee.save()
        if finished:
            self._trainee.save_light()
        report(episode=figures._asdict())
        return finished

    def status(self) -> dict[str, Any]:
        """Return what a progress bar shows."""
        agent = self.agent
        return {
            "phase": agent.phase,
            "epsilon": agent.epsilon,
            "loss": agent.loss,
            "trained": agent.decisions,
        }
