"""The agent's side of the boundary: it watches the providers' counts, window by window."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from grpc import aio

from agent.policy import AgentView, Level, Load
from fogveil.channels import REFUSALS, dial
from fogveil.errors import LostError, SurroundingsError
from fogveil.identity import CLOUD, PROVIDER, Identity
from fogveil.ordering import PATIENCE
from fogveil.recording import Recording
from fogveil.settings import Settings
from fogveil.v1.boundary_pb2 import WatchRequest
from fogveil.v1.boundary_pb2_grpc import QueueServiceStub
from fogveil.v1.full_pb2 import LookRequest
from fogveil.v1.full_pb2_grpc import ResourcesServiceStub
from fogveil.v1.total_pb2 import TotalServiceWatchRequest
from fogveil.v1.total_pb2_grpc import TotalServiceStub
from fogveil.v1.workload_pb2 import Workload

CONNECTING = 10.0
"""Seconds in which a provider must answer the first call."""

CLOCK_FIRST = 1.0
"""Seconds that the clock has to say why a provider left: most often because the run is over."""


class Watching:
    """Streams from all providers that were asked to be watched."""

    def __init__(
        self,
        settings: Settings,
        view: AgentView,
        addresses: Mapping[str, str],
        recording: Recording | None,
    ) -> None:
        self._settings, self._cloud = settings, view.cloud
        self._shares = view.disclosed is Level.TOTAL
        """Whether shares of the total are told in place of counts."""
        self._addresses, self._recording = addresses, recording
        self._channels: dict[str, aio.Channel] = {}
        self._counts: dict[str, deque[list[int]]] = {}
        self._wanted: list[deque[list[int]]] = []
        """The queues that `_complete` waits for: of providers asked for in this window."""
        self._complete = asyncio.Event()
        self._looks: dict[str, Any] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers: list[asyncio.Task[None]] = []

    async def open(self, names: Iterable[str]) -> None:
        """Watch these providers, where they are not watched yet."""
        await asyncio.gather(*(self._open(name) for name in names if name not in self._counts))

    async def _open(self, name: str) -> None:
        call = self._watch(self._channel(name))
        try:
            async with asyncio.timeout(CONNECTING):
                await call.initial_metadata()
        except TimeoutError as error:
            raise _lost(name, f"no answer within {CONNECTING:g} s") from error
        except aio.AioRpcError as error:
            raise _lost(name, error.details()) from error
        self._counts[name] = deque()
        self._readers.append(asyncio.ensure_future(self._read(name, call)))

    def _watch(self, channel: aio.Channel) -> Any:
        if self._shares:
            return TotalServiceStub(channel).Watch(TotalServiceWatchRequest())
        return QueueServiceStub(channel).Watch(WatchRequest())

    def _channel(self, name: str) -> aio.Channel:
        if name not in self._channels:
            role = CLOUD if name == self._cloud else PROVIDER
            peer = Identity(self._settings.run, role, name)
            address = self._addresses[name]
            self._channels[name] = dial(self._settings, address, peer, self._recording)
        return self._channels[name]

    async def _read(self, name: str, call: Any) -> None:
        arrived = self._counts[name]
        try:
            while (response := await call.read()) is not aio.EOF:
                arrived.append(list(response.shares if self._shares else response.counts))
                if len(arrived) == 1 and all(self._wanted):
                    self._complete.set()
        except aio.AioRpcError as error:
            refused = error.details() if error.code() in REFUSALS else None
            self._fail(_lost(name, refused))
        else:
            self._fail(_lost(name))

    def _fail(self, error: SurroundingsError) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def lost(self) -> None:
        """Fail when a watched provider is lost and the clock does not soon say why."""
        try:
            await self._failure
        except SurroundingsError:
            await asyncio.sleep(CLOCK_FIRST)
            raise

    async def window(self, names: tuple[str, ...], size: int) -> list[tuple[int, ...]]:
        """Return the counts of the next window: per instant, one of each of the named providers."""
        queues = [self._counts[name] for name in names]
        if not all(queues):
            self._complete.clear()
            self._wanted = queues
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._complete.wait()
            except TimeoutError:
                late = next(name for name in names if not self._counts[name])
                sentence = f"waited {PATIENCE:g} s for the count of {late}"
                raise LostError(late, sentence) from None
        columns = [queue.popleft() for queue in queues]
        for name, column in zip(names, columns, strict=True):
            if len(column) != size:
                raise LostError(name, f"{name} sent {len(column)} counts, expected {size}")
        return list(zip(*columns, strict=True))

    async def load(self, names: tuple[str, ...], workload: Workload) -> Load:
        """Ask what only level `full` tells, for the workload at hand."""
        demand = workload.demand if workload.HasField("demand") else None
        request = LookRequest(job=workload.job, category=workload.category, demand=demand)
        answers = await asyncio.gather(*(self._look(name, request) for name in names))
        resources = [answer.resources for answer in answers]
        return Load(
            tuple(each.ipt for each in resources),
            tuple(each.ram for each in resources),
            tuple(zip(*(each.expected for each in resources), strict=True)),
            tuple(answer.backlog for answer in answers),
            tuple(answer.service for answer in answers),
        )

    async def _look(self, name: str, request: LookRequest) -> Any:
        if name not in self._looks:
            self._looks[name] = ResourcesServiceStub(self._channel(name)).Look()
        call = self._looks[name]
        try:
            await call.write(request)
            answer = await call.read()
        except aio.AioRpcError as error:
            raise _lost(name, error.details()) from error
        except asyncio.InvalidStateError:  # the call ended before
            answer = aio.EOF
        if answer is aio.EOF:
            raise _lost(name)
        return answer


def _lost(name: str, why: str | None = None) -> LostError:
    return LostError(name, f"{name} was lost" + (f": {why}" if why else ""))
