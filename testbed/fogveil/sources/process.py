"""The sources' process: publishes the workloads of IoT clusters, takes in their results."""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import replace

from fogveil.broker.client import BrokerClient
from fogveil.broker.topics import Topics
from fogveil.core.randomness import drawn
from fogveil.protocol.clock_client import ClockClient, join_clock
from fogveil.protocol.identity import AGENT, BROKER
from fogveil.protocol.message_order import ArrivalCounter, OrderedInbox, chunks, parse_message
from fogveil.protocol.outgoing import Outgoing
from fogveil.protocol.participant import dispatch_messages, first_of
from fogveil.sources.core import EmissionBuffer, demand_factors, emissions
from fogveil.sources.expected_results import ExpectedResults
from fogveil.sources.records import ClusterRecords
from fogveil.sources.settings import SourcesSettings
from fogveil.v1.clock_pb2 import Begin, Grant, SourcesDone
from fogveil.v1.workload_pb2 import Feedback, Workload, Workloads

log = logging.getLogger("sources")


async def serve(settings: SourcesSettings) -> None:
    """Emit the workloads of some IoT clusters in a federated testbed."""
    process = SourcesProcess(settings)
    async with (
        join_clock(settings, process.recording) as clock,
        BrokerClient.from_settings(settings) as relay,
    ):
        process.connect(clock, relay)
        await relay.subscribe(Topics(settings.run).all_feedback(settings.name))
        await first_of(
            process.follow(clock),
            clock.receive(),
            dispatch_messages(relay, process.receive, process.recording),
            on_loss=clock.report_loss,
        )
        await relay.drain()


class SourcesProcess:
    """Connects gRPC and MQTT to the clusters' sources."""

    relay: BrokerClient

    def __init__(self, settings: SourcesSettings) -> None:
        self._settings = settings
        self._config = settings.emissions
        self._clusters = settings.clusters
        self._demands = demand_factors(self._config)
        self._topics = Topics(settings.run)
        recovers = settings.recovers
        ask = self._ask if recovers else None
        self._feedback = {n: OrderedInbox(n, repeats=recovers) for n in settings.providers}
        self._closed = {n: ArrivalCounter("feedback", n, ask) for n in settings.providers}
        self._held: dict[str, deque[Feedback]] = {name: deque() for name in settings.providers}
        """By provider: what it sent of flushes that we have not come to, where we may be lost."""
        self._taken = Counter[str]()
        """By provider: the flushes of which everything was taken in."""
        self._expected = ExpectedResults(settings.name, cloud=settings.providers[-1])
        self._records: ClusterRecords | None = None
        self._now = 0.0
        self._outgoing = Outgoing(self._publish, keeps=recovers)
        self.recording = settings.recording(lambda: self._now)

    def connect(self, clock: ClockClient, relay: BrokerClient) -> None:
        """Speak to the others through these."""
        self._clock, self.relay = clock, relay
        relay.on_loss = lambda: clock.report_lost(BROKER)
        clock.on_repeat = lambda repeat: self._outgoing.repeat(AGENT, repeat.received)

    def _publish(self, topic: str, payload: bytes) -> None:
        self.relay.publish(topic, payload)

    def _ask(self, sender: str) -> None:
        """Ask for a provider's messages that we lack."""
        self._clock.ask(sender, self._feedback[sender].taken)

    def receive(self, topic: str, payload: bytes) -> None:
        """Handle a message with results of jobs."""
        sender = self._topics.sender(topic)
        if sender not in self._feedback:
            log.warning("dropped a message to %s: no provider publishes there", topic)
            return
        message = parse_message(Feedback, payload, sender)
        if message is None:
            return
        for due in self._feedback[sender].take(message.episode, message.sequence, message, payload):
            if self._settings.recovers:
                self._held[sender].append(due)
            else:
                self._take(sender, due)
            self._closed[sender].add(not due.more)

    def _take(self, sender: str, feedback: Feedback) -> None:
        """Take in a message with results of jobs."""
        for result in feedback.results:
            if result.again:
                self._expected.take_loss(result.job, sender, result.again)
        results = [(r.job, sender, r.finished) for r in feedback.results if not r.again]
        for job, name, finished in results:
            self._expected.take(job, name, finished)
        assert self._records is not None, "messages are in order within an episode"
        self._records.received(results)

    def _take_held(self, sender: str, flushes: int) -> None:
        """Take in what a provider sent up to a flush.

        Where we were lost and go through the episode again, it has sent more: of jobs that we have
        not emitted again, and of losses that we did not know of at that time.
        """
        held = self._held[sender]
        while held and self._taken[sender] < flushes:
            feedback = held.popleft()
            self._taken[sender] += not feedback.more
            self._take(sender, feedback)

    async def follow(self, clock: ClockClient) -> None:
        """Carry out the clock's orders until the run ends."""
        try:
            async for order in clock.orders():
                if order.WhichOneof("kind") == "begin":
                    self._begin(order.begin)
                else:
                    await self._publish_window(order.grant)
                times = self._buffer.announce()
                clock.send(sources_done=SourcesDone(next=times, complete=self._buffer.complete))
        finally:
            if self._records:
                self._records.close()

    def _begin(self, begin: Begin) -> None:
        config = replace(self._config, seed=drawn(self._config.seed, begin.draw))
        self._buffer = EmissionBuffer(emissions(config, self._clusters))
        self._episode = begin.episode
        self._sequence = 0
        self._outgoing.begin()
        self._expected.reset()
        for name, inbox in self._feedback.items():
            inbox.begin(begin.episode)
            self._closed[name].reset()
            self._held[name].clear()
        self._taken.clear()
        if self._records:
            self._records.close()
        self._records = ClusterRecords(self._settings.folder, begin.episode)

    async def _publish_window(self, grant: Grant) -> None:
        if grant.last or grant.flush:
            expect = grant.expect if len(grant.expect) > 1 else [*grant.expect] * len(self._closed)
            for counter, flushes in zip(self._closed.values(), expect, strict=True):
                await counter.wait_for(flushes)
            for name, flushes in zip(self._closed, expect, strict=True):
                self._take_held(name, flushes)
            self._buffer.add(self._expected.take_lost())
            return
        self._now = grant.until
        due = self._buffer.take(grant.until)
        workloads = [
            Workload(
                job=job,
                cluster=cluster,
                category=category,
                emitted=emitted,
                demand=self._demands[job] if self._demands else None,
                attempt=self._expected.next_attempt(job),
            )
            for emitted, job, cluster, category in due
        ]
        self._expected.add(workloads)
        assert self._records is not None, "the clock begins an episode before it grants time"
        self._records.emitted(workloads)
        topic = self._topics.workload(self._settings.name)
        for chunk, _ in chunks(workloads):
            self._sequence += 1
            message = Workloads(episode=self._episode, sequence=self._sequence, workloads=chunk)
            self._outgoing.send(AGENT, topic, message.SerializeToString())
