"""The sources' process: the workloads of some IoT clusters out, results of their jobs in."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import merge
from pathlib import Path
from typing import Any

from broker.client import Relay
from broker.topics import Topics
from fogveil.clock_seat import ClockSeat, join_clock
from fogveil.ordering import Sequence, Tally, decode, parts
from fogveil.participant import first_of, listen, main
from fogveil.randomness import drawn
from fogveil.settings import Settings, tuples
from fogveil.v1.clock_pb2 import Begin, Grant, SourcesDone
from fogveil.v1.workload_pb2 import Feedback, Workload, Workloads
from testbed.federated.windows import LARGEST_WINDOW
from testbed.sources import Emission, SourcesConfig, demand_factors, streams
from testbed.traces import Trace

log = logging.getLogger("sources")

HEADER = "job,provider,finished"


def feedback_path(folder: Path, episode: int) -> Path:
    """Return where the clusters note the results of an episode."""
    return folder / f"feedback-{episode:04}.csv"


async def serve(settings: Settings) -> None:
    """Emit the workloads of some IoT clusters in a federated testbed."""
    with settings.reading():
        process = SourcesProcess(settings)
    async with (
        join_clock(settings, process.recording) as seat,
        Relay.of(settings) as relay,
    ):
        process.relay = relay
        await relay.subscribe(Topics(settings.run).all_feedback(settings.name))
        await first_of(
            process.follow(seat),
            seat.hear(),
            listen(relay, process.receive, process.recording),
            farewell=seat.leave,
        )
        await relay.drained()


def sources_config(plain: dict[str, Any]) -> SourcesConfig:
    """Read the sources' share of the scenario."""
    given = {key: tuples(value) for key, value in plain.items() if key != "trace"}
    trace = plain["trace"]
    if trace is not None:
        trace = Trace(**{key: tuples(value) for key, value in trace.items()})
    return SourcesConfig(**given, trace=trace)


def emissions(config: SourcesConfig, clusters: Iterable[int]) -> Iterator[Emission]:
    """Yield what the given clusters emit, in order of time and job id."""
    mine = frozenset(clusters)
    return (emission for emission in merge(*streams(config)) if emission[2] in mine)


class Ahead:
    """Emissions, and a look at what comes next."""

    def __init__(self, emitted: Iterator[Emission]) -> None:
        self._emitted = emitted
        self._next: list[Emission] = []
        self.complete = False

    def take(self, until: float) -> list[Emission]:
        """Return what is emitted up to and including `until`, which was announced before."""
        due = [emission for emission in self._next if emission[0] <= until]
        del self._next[: len(due)]
        return due

    def announce(self) -> list[float]:
        """Return the times of the next emissions; all or none of those of one instant."""
        known = self._next
        while not self.complete and (len(known) <= LARGEST_WINDOW or known[-1][0] == known[-2][0]):
            following = next(self._emitted, None)
            if following is None:
                self.complete = True
            else:
                known.append(following)
        # The last one only shows that those before it are all of their instant.
        return [emission[0] for emission in (known if self.complete else known[:-1])]


class SourcesProcess:
    """Carries messages between the transports and the clusters."""

    relay: Relay

    def __init__(self, settings: Settings) -> None:
        own = settings.own
        self._settings = settings
        self._config = sources_config(own["sources"])
        self._clusters: list[int] = own["clusters"]
        self._demands = demand_factors(self._config)
        self._topics = Topics(settings.run)
        self._feedback = {name: Sequence(name) for name in own["providers"]}
        self._closed = {name: Tally("feedback", name) for name in own["providers"]}
        self._emitted: set[int] = set()
        self._file: Any = None
        self._now = 0.0
        self.recording = settings.recording(lambda: self._now)

    def receive(self, topic: str, payload: bytes) -> None:
        """Take results in."""
        sender = self._topics.publisher(topic)
        if sender not in self._feedback:
            log.warning("dropped a message to %s, where nobody sends results", topic)
            return
        message = decode(Feedback, payload, sender)
        if message is None:
            return
        for due in self._feedback[sender].take(message.episode, message.sequence, message):
            for result in due.results:
                if result.job in self._emitted:
                    self._file.write(f"{result.job},{sender},{result.finished!r}\n")
                else:
                    log.warning(
                        "dropped the result of job %d from %s: no such job", *(result.job, sender)
                    )
            self._file.flush()
            self._closed[sender].add(not due.more)

    async def follow(self, seat: ClockSeat) -> None:
        """Do what the clock orders until the run ends."""
        try:
            async for order in seat.orders():
                if order.WhichOneof("kind") == "begin":
                    self._begin(order.begin)
                else:
                    await self._granted(order.grant)
                times = self._ahead.announce()
                seat.say(sources_done=SourcesDone(next=times, complete=self._ahead.complete))
        finally:
            if self._file:
                self._file.close()

    def _begin(self, begin: Begin) -> None:
        config = replace(self._config, seed=drawn(self._config.seed, begin.draw))
        self._ahead = Ahead(emissions(config, self._clusters))
        self._episode = begin.episode
        self._sequence = 0
        self._emitted = set()
        for name, inbox in self._feedback.items():
            inbox.begin(begin.episode)
            self._closed[name].reset()
        if self._file:
            self._file.close()
        path = feedback_path(self._settings.folder, begin.episode)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._file.write(HEADER + "\n")
        self._file.flush()

    async def _granted(self, grant: Grant) -> None:
        if grant.last:
            for tally in self._closed.values():
                await tally.reach(grant.expect[0])
            return
        self._now = grant.until
        due = self._ahead.take(grant.until)
        self._emitted.update(emission[1] for emission in due)
        workloads = [
            Workload(
                job=job,
                cluster=cluster,
                category=category,
                emitted=emitted,
                demand=self._demands[job] if self._demands else None,
            )
            for emitted, job, cluster, category in due
        ]
        topic = self._topics.workload(self._settings.name)
        for part, _ in parts(workloads):
            self._sequence += 1
            message = Workloads(episode=self._episode, sequence=self._sequence, workloads=part)
            self.relay.publish(topic, message.SerializeToString())


if __name__ == "__main__":
    main("testbed.federated.sources", serve)
