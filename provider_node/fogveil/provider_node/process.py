"""The provider's process: one port with one service; everything else it dials out to."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from grpc import aio

from fogveil.broker.client import BrokerClient
from fogveil.broker.topics import Topics
from fogveil.core.disclosure import Level
from fogveil.protocol.channels import start_server
from fogveil.protocol.clock_client import ClockClient, join_clock
from fogveil.protocol.identity import AGENT, BROKER
from fogveil.protocol.message_order import ArrivalCounter, OrderedInbox, parse_message
from fogveil.protocol.outgoing import Outgoing
from fogveil.protocol.participant import dispatch_messages, first_of, report
from fogveil.protocol.reflection import serve_reflection
from fogveil.provider_node.boundary import QueueBoundary, ResourcesBoundary, TotalBoundary
from fogveil.provider_node.core import ProviderCore, WindowOutput
from fogveil.provider_node.journal import Journal
from fogveil.provider_node.outbox import CLOUD
from fogveil.provider_node.secure_sum import SecureSum
from fogveil.provider_node.settings import ProviderSettings
from fogveil.v1.boundary_pb2_grpc import add_QueueServiceServicer_to_server
from fogveil.v1.clock_pb2 import Begin, Grant, JoinResponse, ProviderDone, ProviderReady, Repeat
from fogveil.v1.full_pb2_grpc import add_ResourcesServiceServicer_to_server
from fogveil.v1.total_pb2_grpc import add_TotalServiceServicer_to_server
from fogveil.v1.workload_pb2 import Aggregates, Placements

log = logging.getLogger("provider_node")

SERVED = {
    Level.TOTAL: ("fogveil.v1.TotalService",),
    Level.COUNT: ("fogveil.v1.QueueService",),
    Level.FULL: ("fogveil.v1.QueueService", "fogveil.v1.ResourcesService"),
}
"""What server reflection lists to the auditor."""


async def serve(settings: ProviderSettings) -> None:
    """Serve as one Fog provider, or as the Cloud, in a federated testbed."""
    process = ProviderProcess(settings)
    await process.open_port()
    async with (
        join_clock(settings, process.recording) as clock,
        BrokerClient.from_settings(settings) as relay,
    ):
        process.connect(clock, relay)
        await relay.subscribe(*process.subscriptions())
        await first_of(
            process.follow(clock),
            clock.receive(process.try_window_now),
            dispatch_messages(relay, process.receive, process.recording),
            on_loss=clock.report_loss,
        )
        await relay.drain()
        await process.finish()


class ProviderProcess:
    """Connects gRPC and MQTT to `ProviderCore`."""

    relay: BrokerClient

    def __init__(self, settings: ProviderSettings) -> None:
        self._settings = settings
        self._config = config = settings.provider
        self._topics = Topics(settings.run)
        recovers = settings.recovers
        views = recovers and config.disclosure is Level.FULL
        self._core = ProviderCore(config, settings.owners, pads=settings.pads, keeps_views=views)
        self._secure_sum = SecureSum(settings) if config.disclosure is Level.TOTAL else None
        self._boundary: TotalBoundary | QueueBoundary = QueueBoundary(keeps=recovers)
        if self._secure_sum:
            self._boundary = TotalBoundary(self._secure_sum, keeps=recovers)
        crashes = bool(self._core.provider.timetable.stops)
        self.recording = settings.recording(lambda: self._core.now, may_crash=crashes)
        ask = self._ask if recovers else None
        self._placements = OrderedInbox(AGENT, repeats=recovers)
        self._placed = ArrivalCounter("placement", AGENT, ask)
        self._aggregates = {n: OrderedInbox(n, repeats=recovers) for n in settings.fogs}
        self._closed = {name: ArrivalCounter("window", name, ask) for name in settings.fogs}
        """Windows whose aggregates have all arrived, by Fog provider."""
        self._outgoing = Outgoing(self._publish, keeps=recovers)
        self._windows_forwarded = 0
        self._repeated = 0
        """Orders to carry out again, after a crash, without telling anybody anything."""
        self._journal: Journal | None = None

    def connect(self, clock: ClockClient, relay: BrokerClient) -> None:
        """Speak to the others through these."""
        self._clock, self.relay = clock, relay
        relay.on_loss = lambda: clock.report_lost(BROKER)
        clock.on_repeat = self._send_again

    def _publish(self, topic: str, payload: bytes) -> None:
        self.relay.publish(topic, payload)

    def _ask(self, sender: str) -> None:
        """Ask for a sender's messages that we lack."""
        self._clock.ask(sender, (self._aggregates.get(sender) or self._placements).taken)

    def _send_again(self, repeat: Repeat) -> None:
        """Publish again what somebody lacks: a sources process, or the Cloud."""
        receiver = repeat.name if repeat.name in self._settings.owners else CLOUD
        self._outgoing.repeat(receiver, repeat.received)

    async def open_port(self) -> None:
        """Listen, unless the level discloses nothing at all."""
        level, services = self._config.disclosure, []
        if level is Level.NONE:
            report(listening=None)
            return
        boundary = self._boundary
        if isinstance(boundary, TotalBoundary):
            services.append(lambda server: add_TotalServiceServicer_to_server(boundary, server))
        else:
            services.append(lambda server: add_QueueServiceServicer_to_server(boundary, server))
        if level is Level.FULL:
            full = ResourcesBoundary(self._core)
            services.append(lambda server: add_ResourcesServiceServicer_to_server(full, server))
        if self._settings.secure:  # without identities the auditor is not told from the agent
            services.append(partial(serve_reflection, SERVED[level]))
        self._server, port = await start_server(
            self._settings, self._settings.listen, self.recording, *services
        )
        report(listening=port)

    async def finish(self) -> None:
        """Wait until the agent, to whom we listen, has left the run, and forget all keys."""
        await self._boundary.wait_until_unwatched()
        if self._secure_sum:
            self._secure_sum.forget()

    def subscriptions(self) -> list[str]:
        """Return the topic filters to subscribe to."""
        topics, name = self._topics, self._settings.name
        work = topics.all_aggregates if self._config.is_cloud else topics.placement(name)
        return [work, topics.all_keys] if self._secure_sum else [work]

    async def _open_epoch(
        self, total: SecureSum, epoch: int, telling: Iterable[int] | None = None
    ) -> None:
        """Agree on keys with the others that add up to the total from now on."""
        if total.open(epoch, telling):
            topic = self._topics.keys(self._settings.name)
            self.relay.publish(topic, total.announcement(), retain=True)
            await total.agree()

    # --- MQTT ------------------------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes) -> None:
        """Handle a message: a key, placements, or (the Cloud) aggregates."""
        sender = self._topics.sender(topic)
        if self._secure_sum and topic == self._topics.keys(sender):
            self._secure_sum.receive(sender, payload)
        elif self._config.is_cloud:
            self._receive_aggregates(topic, sender, payload)
        else:
            self._receive_placements(payload)

    def _receive_placements(self, payload: bytes) -> None:
        message = parse_message(Placements, payload, AGENT)
        if message is None:
            return
        for due in self._placements.take(message.episode, message.sequence, message, payload):
            self._placed.add(self._core.accept(due.placements))

    def _receive_aggregates(self, topic: str, sender: str, payload: bytes) -> None:
        if sender not in self._aggregates:
            log.warning("dropped a message to %s: no Fog provider publishes there", topic)
            return
        message = parse_message(Aggregates, payload, sender)
        if message is None:
            return
        inbox = self._aggregates[sender]
        for due in inbox.take(message.episode, message.sequence, message, payload):
            self._core.accept_aggregates(due, sender)
            self._closed[sender].add(not due.more)

    # --- the clock's orders ----------------------------------------------------------------------

    async def follow(self, clock: ClockClient) -> None:
        """Carry out the clock's orders until the run ends."""
        try:
            async for order in clock.orders():
                kind = order.WhichOneof("kind")
                if kind == "begin":
                    await self._begin(order.begin)
                    clock.send(provider_ready=ProviderReady())
                elif kind == "members" and self._secure_sum:
                    members = order.members
                    await self._open_epoch(self._secure_sum, members.epoch, members.telling)
                elif kind == "grant":
                    await self._run_window(order.grant)
                    if order.grant.flush:
                        clock.send(provider_done=ProviderDone())
        finally:
            if self._journal:
                self._journal.close()

    async def _begin(self, begin: Begin) -> None:
        self._repeated = begin.repeated_orders
        if total := self._secure_sum:
            if begin.repeated_orders:
                total.sit_out(begin.epoch)
            elif begin.epoch != total.epoch:
                await self._open_epoch(total, begin.epoch)
            total.begin(begin.episode)
        self._core.begin(begin.episode, begin.draw)
        self._boundary.begin(begin.episode)
        self._outgoing.begin()
        self._windows_forwarded = 0
        for inbox in (self._placements, *self._aggregates.values()):
            inbox.begin(begin.episode)
        for counter in (self._placed, *self._closed.values()):
            counter.reset()
        if self._journal:
            self._journal.close()
        self._journal = Journal(self._settings.folder, begin.episode)

    async def _run_window(self, grant: Grant) -> None:
        """Wait for the jobs of a window, then go through it."""
        if self._config.is_cloud:
            self._windows_forwarded += grant.forward
            forwarded = grant.expect or [self._windows_forwarded] * len(self._closed)
            for counter, windows in zip(self._closed.values(), forwarded, strict=True):
                await counter.wait_for(windows)
        else:
            await self._placed.wait_for(grant.expect[0])
        pending = self._process_window(grant)
        if pending:
            with suppress(aio.BaseError):  # the agent is lost: the clock will say so
                await pending

    def try_window_now(self, order: JoinResponse) -> Awaitable[None] | None:
        """Go through an ordinary window at once if its placements have arrived (`FastPath`)."""
        grant = order.grant
        if self._repeated or not grant.observe_at or grant.forward:
            return None
        if self._placed.count < grant.expect[0]:
            return None
        return self._process_window(grant)

    def _process_window(self, grant: Grant) -> Awaitable[None] | None:
        output = self._core.process_window(grant)
        if (
            self._repeated
        ):  # what it tells and sends was told and sent before the crash of a scenario
            self._repeated -= 1
            for message in self._messages(output):
                self._outgoing.keep(*message)
            self._keep_journal(output)
            return self._boundary.repeat(output.counts) if output.counts else None
        disclosing = self._boundary.disclose(output.counts) if output.counts else None
        if output.served or output.aggregates or output.feedback:
            return self._disclose_then_publish(disclosing, output)
        return disclosing

    async def _disclose_then_publish(
        self, disclosing: Awaitable[None] | None, output: WindowOutput
    ) -> None:
        # Counts go first: the moment at which they arrive must not depend on other work.
        if disclosing:
            with suppress(aio.BaseError):  # the agent is lost: the clock will say so
                await disclosing
        for message in self._messages(output):
            self._outgoing.send(*message)
        self._keep_journal(output)

    def _messages(self, output: WindowOutput) -> Iterator[tuple[str, str, bytes]]:
        """Yield what is to be published: the receiver, the topic and the payload."""
        name, topics = self._settings.name, self._topics
        for aggregates in output.aggregates:
            yield CLOUD, topics.aggregate(name), aggregates.SerializeToString()
        for owner, messages in output.feedback.items():
            for feedback in messages:
                yield owner, topics.feedback(owner, name), feedback.SerializeToString()

    def _keep_journal(self, output: WindowOutput) -> None:
        if output.served:
            assert self._journal is not None
            self._journal.add(output.served, output.passed_on, self._core.demands)
