"""The agent's process: workloads and counts in, placements out; in training it also learns."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import fogveil.agent.policies as policies
from fogveil.agent.adaptation_host import AdaptationHost
from fogveil.agent.boundary_client import BoundaryClient
from fogveil.agent.episode import Episode
from fogveil.agent.inbox import Inbox
from fogveil.agent.marks import Marks
from fogveil.agent.policy import Policy
from fogveil.agent.policy_call import watching
from fogveil.agent.settings import AgentSettings
from fogveil.agent.training_host import TrainingHost, preload
from fogveil.broker.client import BrokerClient
from fogveil.broker.topics import Topics
from fogveil.core.randomness import drawn
from fogveil.protocol.clock_client import ClockClient, join_clock
from fogveil.protocol.identity import BROKER
from fogveil.protocol.message_order import ArrivalCounter, OrderedInbox, parse_message
from fogveil.protocol.outgoing import Outgoing
from fogveil.protocol.participant import dispatch_messages, first_of, report
from fogveil.v1.clock_pb2 import AgentDone, Begin, Grant, JoinRequest, Members
from fogveil.v1.workload_pb2 import Workloads

log = logging.getLogger("agent")

REPORT_PERIOD = 0.25
"""Seconds between two reports of progress."""


async def serve(settings: AgentSettings) -> None:
    """Place workloads as the central agent of a federated testbed until the run ends."""
    process = AgentProcess(settings)
    async with (
        join_clock(settings, process.recording) as clock,
        BrokerClient.from_settings(settings) as relay,
    ):
        process.connect(clock, relay)
        await relay.subscribe(Topics(settings.run).all_workloads)
        await first_of(
            process.follow(clock),
            clock.receive(),
            process.boundary.lost(),
            dispatch_messages(relay, process.receive, process.recording),
            on_loss=clock.report_loss,
        )
        await relay.drain()


def prepare(settings: AgentSettings) -> None:
    """Load our own policies before the process becomes the agent's user, and no user's code."""
    for spec in dict.fromkeys(settings.policies):
        if not policies.is_foreign(spec):
            located = _locate(settings, spec)
            policies.load(located, settings.view)
            if settings.adaptation:
                AdaptationHost(settings, settings.adaptation, located, settings.view, 0)
    if settings.training:
        preload(settings.training)


def _locate(settings: AgentSettings, spec: str) -> str:
    """Return a policy's spec with the path of its file, if it has one, in the agent's folder."""
    return spec if policies.file_of(spec) is None else str(settings.folder / spec)


class AgentProcess:
    """Carries messages between the transports and the episode."""

    relay: BrokerClient

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._view = view = settings.view
        self._topics = Topics(settings.run)
        self._training = TrainingHost(settings, settings.training) if settings.training else None
        self._adaptation: AdaptationHost | None = None
        self._now = 0.0
        self.recording = settings.recording(lambda: self._now)
        self._marks = Marks(settings)
        self.boundary = BoundaryClient(settings, self._marks, self.recording)
        self._inbox = Inbox(view, settings.emissions)
        recovers = settings.recovers
        ask = self._ask if recovers else None
        self._workloads = {n: OrderedInbox(n, repeats=recovers) for n in settings.sources}
        self._emitted = {n: ArrivalCounter("workload", n, ask) for n in settings.sources}
        self._outgoing = Outgoing(self._publish)
        self._decisions = 0
        self._last_report = 0.0
        self._watching = ExitStack()

    def connect(self, clock: ClockClient, relay: BrokerClient) -> None:
        """Speak to the others through these."""
        self._clock, self.relay = clock, relay
        self.boundary.repeats = lambda: clock.repeats
        relay.on_loss = lambda: clock.report_lost(BROKER)
        clock.on_repeat = lambda repeat: self._outgoing.repeat(repeat.name, repeat.received)

    def _publish(self, topic: str, payload: bytes) -> None:
        self.relay.publish(topic, payload)

    def _ask(self, sender: str) -> None:
        """Ask for workloads of a sources process that we lack."""
        self._clock.ask(sender, self._workloads[sender].taken)

    # --- MQTT ------------------------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes) -> None:
        """Put a message's workloads into the inbox."""
        sender = self._topics.sender(topic)
        if sender not in self._workloads:
            log.warning("dropped a message to %s: its sender emits no workloads", topic)
            return
        message = parse_message(Workloads, payload, sender)
        if message is None:
            return
        for due in self._workloads[sender].take(
            message.episode, message.sequence, message, payload
        ):
            self._emitted[sender].add(self._inbox.add(sender, due.workloads))

    # --- the clock's orders ----------------------------------------------------------------------

    async def follow(self, clock: ClockClient) -> None:
        """Carry out the clock's orders until the run ends."""
        episode: Episode | None = None
        try:
            async for order in clock.orders():
                if order.WhichOneof("kind") == "begin":
                    if episode:
                        episode.close()
                    episode = self._begin(order.begin)
                    await self.boundary.watch(episode.watched)
                    clock.send(agent_ready=episode.ready)
                    continue
                assert episode is not None, "the clock begins an episode before it grants time"
                if order.WhichOneof("kind") == "members":
                    await self._change_members(episode, order.members)
                    clock.send(agent_done=AgentDone())
                elif order.grant.last:
                    await episode.catch_up()
                    clock.send(agent_done=AgentDone(enough=self._end(episode)))
                else:
                    placed = await self._decide(episode, order.grant)
                    done = AgentDone(placed=placed, marked=self._marks.take_unsaid())
                    await clock.send_now(JoinRequest(agent_done=done))
                    episode.flush()
                    self._report_status(episode)
        finally:
            self._watching.close()
            if episode:
                episode.close()
            if self.recording:
                self.recording.close()

    def _begin(self, begin: Begin) -> Episode:
        self._inbox.reset()
        self._outgoing.begin()
        self._marks.begin(begin.episode)
        self.boundary.begin(begin.episode)
        for name, inbox in self._workloads.items():
            inbox.begin(begin.episode)
            self._emitted[name].reset()
        policy = self._policy(begin)
        learner = self._training or self._adaptation
        self._watching.close()
        self._watching.enter_context(watching(policy))
        return Episode(
            begin.episode,
            self._view,
            policy,
            self.boundary,
            self._marks,
            self._settings.folder,
            window=self._settings.window,
            latencies=self._settings.latency_changes,
            training_limits=learner.agent.ahead_limits() if learner else None,
        )

    async def _change_members(self, episode: Episode, members: Members) -> None:
        """Go on with other providers; send those that are back from a crash their jobs again."""
        nodes = self._view.nodes
        await episode.change_members(members.available[:], members.telling[:])
        # Also where this policy needs no count: an episode before it may have watched.
        telling = set(members.telling)
        await self.boundary.unwatch(nodes[n] for n in range(len(nodes)) if n not in telling)
        await self.boundary.watch(episode.watched)
        for node in members.back:
            self._outgoing.repeat(nodes[node])

    def _policy(self, begin: Begin) -> Policy:
        if self._training:
            self._training.begin()
            return self._training.agent
        # A run's chance is that of its draw, as in the embedded engine.
        view = replace(self._view, seed=drawn(self._view.seed, begin.draw))
        spec = _locate(self._settings, self._settings.policies[begin.episode])
        if self._settings.adaptation:
            self._adaptation = AdaptationHost(
                self._settings, self._settings.adaptation, spec, view, begin.episode
            )
            return self._adaptation.agent
        return policies.load(spec, view)

    async def _decide(self, episode: Episode, grant: Grant) -> list[int]:
        """Decide a window, publish its placements and return how many each provider gets."""
        self._now = self._marks.now = grant.until
        for counter, expected in zip(self._emitted.values(), grant.expect, strict=True):
            await counter.wait_for(expected)
        announced = dict(zip(self._emitted, grant.expect, strict=True))
        workloads = self._inbox.take(grant.observe_at[:], grant.until, announced)
        placed = [0] * len(self._view.nodes)
        for node, message in (await episode.decide(workloads)).items():
            placed[node] = len(message.placements)
            name = self._view.nodes[node]
            payload = message.SerializeToString()
            self._outgoing.send(name, self._topics.placement(name), payload)
        self._decisions += len(workloads)
        return placed

    def _end(self, episode: Episode) -> bool:
        """Close the episode; return whether the agent needs no further one."""
        episode.close()
        self._report_status(episode, now=True)
        if self._adaptation:
            self._adaptation.end()
        return self._training.end() if self._training else False

    def _report_status(self, episode: Episode, *, now: bool = False) -> None:
        if now or time.monotonic() - self._last_report > REPORT_PERIOD:
            self._last_report = time.monotonic()
            learner = self._training or self._adaptation
            progress = learner.status() if learner else {}
            seen: dict[str, Any] = {"queued": episode.queued, "counts": episode.counts}
            if self._marks.names:
                seen["marked"] = sorted(self._marks.names)
            report(agent={"decisions": self._decisions, **seen, **progress})
