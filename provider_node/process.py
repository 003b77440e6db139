"""The provider's process: one port with one service; everything else it dials out to."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from broker.client import Relay
from broker.topics import AGENT, Topics
from fogveil.channels import serve as serve_grpc
from fogveil.clock_seat import ClockSeat, join_clock
from fogveil.disclosure import CountKind, Level
from fogveil.ordering import Sequence, Tally, decode
from fogveil.participant import first_of, listen, report
from fogveil.reflection import serve_reflection
from fogveil.settings import Settings, tuples
from fogveil.v1.boundary_pb2_grpc import add_QueueServiceServicer_to_server
from fogveil.v1.clock_pb2 import Begin, Grant, JoinResponse, ProviderDone, ProviderReady
from fogveil.v1.full_pb2_grpc import add_ResourcesServiceServicer_to_server
from fogveil.v1.total_pb2_grpc import add_TotalServiceServicer_to_server
from fogveil.v1.workload_pb2 import Aggregates, Placements
from provider_node.boundary import QueueBoundary, ResourcesBoundary, TotalBoundary
from provider_node.journal import Journal
from provider_node.provider import ProviderConfig
from provider_node.serving import Output, Serving
from provider_node.totals import Totals

log = logging.getLogger("provider_node")

SERVED = {
    Level.TOTAL: ("fogveil.v1.TotalService",),
    Level.COUNT: ("fogveil.v1.QueueService",),
    Level.FULL: ("fogveil.v1.QueueService", "fogveil.v1.ResourcesService"),
}
"""What the auditor is told by reflection that is served."""


async def serve(settings: Settings) -> None:
    """Serve as one Fog provider, or as the Cloud, in a federated testbed."""
    with settings.reading():
        process = ProviderProcess(settings, provider_config(settings.own["provider"]))
    await process.open_port()
    async with (
        join_clock(settings, process.recording) as seat,
        Relay.of(settings) as relay,
    ):
        process.relay = relay
        await relay.subscribe(*process.topics_of_interest())
        process.announce()
        await first_of(
            process.follow(seat),
            seat.hear(process.at_once),
            listen(relay, process.receive, process.recording),
            farewell=seat.leave,
        )
        await relay.drained()


def provider_config(plain: dict[str, Any]) -> ProviderConfig:
    """Read the provider's share of the scenario."""
    given = {key: tuples(value) for key, value in plain.items()}
    given["disclosure"] = Level.parse(given["disclosure"])
    given["count"] = CountKind(given["count"])
    return ProviderConfig(**given)


class ProviderProcess:
    """Carries messages between the transports and `Serving`."""

    relay: Relay

    def __init__(self, settings: Settings, config: ProviderConfig) -> None:
        self._settings, self._config = settings, config
        self._topics = Topics(settings.run)
        self._serving = Serving(config, tuple(settings.own["owners"]))
        self._totals = Totals(settings) if config.disclosure is Level.TOTAL else None
        self._boundary = TotalBoundary(self._totals) if self._totals else QueueBoundary()
        self.recording = settings.recording(lambda: self._serving.now)
        self._listen: str = settings.own["listen"]
        fogs = settings.own["fogs"]
        self._is_cloud = bool(fogs)
        """The Cloud alone is told who sends it aggregates."""
        self._placements = Sequence(AGENT)
        self._placed = Tally("placement", AGENT)
        self._aggregates = {name: Sequence(name) for name in fogs}
        self._closed = {name: Tally("window", name) for name in fogs}
        self._forwards = 0
        self._journal: Journal | None = None

    async def open_port(self) -> None:
        """Listen, where anything is disclosed at all."""
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
            full = ResourcesBoundary(self._serving)
            services.append(lambda server: add_ResourcesServiceServicer_to_server(full, server))
        if self._settings.secure:  # else nobody could tell the auditor from the agent
            services.append(partial(serve_reflection, SERVED[level]))
        self._server, port = await serve_grpc(
            self._settings, self._listen, self.recording, *services
        )
        report(listening=port)

    def topics_of_interest(self) -> list[str]:
        """Return what to subscribe to."""
        topics = self._topics
        work = topics.all_aggregates if self._is_cloud else topics.placement(self._settings.name)
        return [work, topics.all_keys] if self._totals else [work]

    def announce(self) -> None:
        """Publish what others must know before the first observation."""
        if self._totals:
            topic = self._topics.keys(self._settings.name)
            self.relay.publish(topic, self._totals.announcement(), retain=True)

    # --- what comes over MQTT --------------------------------------------------------------------

    def receive(self, topic: str, payload: bytes) -> None:
        """Take a message in."""
        if self._totals and topic == self._topics.keys(sender := self._topics.publisher(topic)):
            self._totals.receive(sender, payload)
            return
        if not self._is_cloud:
            message = decode(Placements, payload, AGENT)
            if message is None:
                return
            for due in self._placements.take(message.episode, message.sequence, message):
                self._placed.add(sum(map(self._serving.accept, due.placements)))
            return
        sender = self._topics.publisher(topic)
        if sender not in self._aggregates:
            log.warning("dropped a message to %s, where nobody sends aggregates", topic)
            return
        closing = decode(Aggregates, payload, sender)
        if closing is not None:
            inbox = self._aggregates[sender]
            for due in inbox.take(closing.episode, closing.sequence, closing):
                for aggregate in due.aggregates:
                    self._serving.accept(aggregate)
                self._closed[sender].add(not due.more)

    # --- what the clock orders -------------------------------------------------------------------

    async def follow(self, seat: ClockSeat) -> None:
        """Do what the clock orders until the run ends."""
        try:
            async for order in seat.orders():
                if order.WhichOneof("kind") == "begin":
                    await self._begin(order.begin)
                    seat.say(provider_ready=ProviderReady())
                else:
                    await self._granted(order.grant, seat)
        finally:
            if self._journal:
                self._journal.close()

    async def _begin(self, begin: Begin) -> None:
        if self._totals:
            await self._totals.begin(begin.episode)
        self._serving.begin(begin.episode, begin.draw)
        self._forwards = 0
        for inbox in (self._placements, *self._aggregates.values()):
            inbox.begin(begin.episode)
        for tally in (self._placed, *self._closed.values()):
            tally.reset()
        if self._journal:
            self._journal.close()
        self._journal = Journal(self._settings.folder, begin.episode)

    async def _granted(self, grant: Grant, seat: ClockSeat) -> None:
        if self._is_cloud:
            self._forwards += grant.forward
            for tally in self._closed.values():
                await tally.reach(self._forwards)
        else:
            await self._placed.reach(grant.expect[0])
        await self._work(grant)
        if grant.flush:
            seat.say(provider_done=ProviderDone())

    async def at_once(self, order: JoinResponse) -> bool:
        """Do an ordinary window here and now if its placements are there."""
        grant = order.grant
        if not grant.observe_at or grant.forward or self._placed.count < grant.expect[0]:
            return False
        await self._work(grant)
        return True

    async def _work(self, grant: Grant) -> None:
        output = self._serving.work(grant)
        if grant.observe_at:
            await self._boundary.tell(output.counts)
        self._send(output)

    def _send(self, output: Output) -> None:
        name, topics = self._settings.name, self._topics
        for aggregates in output.aggregates:
            self.relay.publish(topics.aggregate(name), aggregates.SerializeToString())
        for owner, messages in output.feedback.items():
            for feedback in messages:
                self.relay.publish(topics.feedback(owner, name), feedback.SerializeToString())
        if output.served:
            assert self._journal is not None
            self._journal.add(output.served, output.passed_on)
