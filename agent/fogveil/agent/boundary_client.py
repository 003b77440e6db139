"""The agent's gRPC client at the boundary: the providers' counts, window by window."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from grpc import aio

from fogveil.agent.policy import AgentView, Level, Load
from fogveil.core.errors import InfrastructureError, LostError, MisbehaviourError
from fogveil.protocol.channels import REFUSALS, dial
from fogveil.protocol.identity import CLOUD, PROVIDER, Identity
from fogveil.protocol.message_order import PATIENCE, RECOVERY_PATIENCE
from fogveil.protocol.recording import Recording
from fogveil.protocol.settings import Settings
from fogveil.v1.boundary_pb2 import WatchRequest
from fogveil.v1.boundary_pb2_grpc import QueueServiceStub
from fogveil.v1.full_pb2 import LookRequest, LookResponse, Resources
from fogveil.v1.full_pb2_grpc import ResourcesServiceStub
from fogveil.v1.total_pb2 import TotalServiceWatchRequest
from fogveil.v1.total_pb2_grpc import TotalServiceStub
from fogveil.v1.workload_pb2 import Workload

CONNECT_TIMEOUT = 30.0
"""Seconds in which a provider must answer the first call."""

RETRY_EVERY = 0.1
CLOCK_FIRST = 5.0
"""Seconds in which the clock may report why a provider left: mostly because the run is over."""


class BoundaryClient:
    """Receives the streams of all watched providers.

    Where the run goes on after a loss, it watches a provider again whose stream breaks off, and
    says which windows it has.
    """

    def __init__(
        self,
        settings: Settings,
        view: AgentView,
        addresses: Mapping[str, str],
        recording: Recording | None,
    ) -> None:
        self._settings, self._cloud = settings, view.cloud
        self._categories = len(view.categories)
        self._masked = view.disclosed is Level.TOTAL
        """Whether providers send masked shares of the total in place of counts."""
        self._addresses, self._recording = addresses, recording
        self._channels: dict[str, aio.Channel] = {}
        self._counts: dict[str, deque[list[int]]] = {}
        self._awaited: list[deque[list[int]]] = []
        """The queues that `_complete` waits for: those of this window's providers."""
        self._complete = asyncio.Event()
        self._resource_calls: dict[str, Any] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._recovers = settings.recovers
        self._patience = RECOVERY_PATIENCE if self._recovers else PATIENCE
        self.begin(0)

    def begin(self, episode: int) -> None:
        """Begin an episode: windows are counted anew."""
        self._episode = episode
        self._received: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()

    async def watch(self, names: Iterable[str]) -> None:
        """Watch these providers, unless they are watched already."""
        await asyncio.gather(*(self._connect(name) for name in names if name not in self._counts))

    async def unwatch(self, names: Iterable[str]) -> None:
        """Watch these providers no more: they are about to be gone."""
        for name in names:
            if name not in self._counts:
                continue
            reader = self._readers.pop(name)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            del self._counts[name]
            # Going through an episode again, we are told windows of after this at once.
            self._received[name] = self._taken[name]
            await self._hang_up(name)

    async def _connect(self, name: str) -> None:
        try:
            call = await self._call(name)
        except LostError as error:
            if not self._recovers:
                raise
            call = await self._call_again(name, error)
        self._counts[name] = deque()
        self._readers[name] = asyncio.ensure_future(self._read(name, call))

    async def _call(self, name: str) -> Any:
        """Watch a provider: return the call once it is answered."""
        call = self._counts_call(name)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await call.initial_metadata()
        except TimeoutError as error:
            raise _lost(name, f"no answer within {CONNECT_TIMEOUT:g} s") from error
        except aio.AioRpcError as error:
            raise _lost(name, error.details()) from error
        return call

    async def _call_again(self, name: str, error: InfrastructureError) -> Any:
        """Watch a provider again that is back, or raise the error if it does not come back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while loop.time() < deadline:
            # A channel to one that is gone would wait longer and longer before it tries again.
            await self._hang_up(name)
            with suppress(LostError):
                return await self._call(name)
            await asyncio.sleep(RETRY_EVERY)
        raise error

    async def _hang_up(self, name: str) -> None:
        self._resource_calls.pop(name, None)
        if channel := self._channels.pop(name, None):
            await channel.close()

    def _counts_call(self, name: str) -> Any:
        channel, place = self._channel(name), {}
        if self._recovers:
            place = {"episode": self._episode, "index": self._received[name]}
        if self._masked:
            return TotalServiceStub(channel).Watch(TotalServiceWatchRequest(**place))
        return QueueServiceStub(channel).Watch(WatchRequest(**place))

    def _channel(self, name: str) -> aio.Channel:
        if name not in self._channels:
            role = CLOUD if name == self._cloud else PROVIDER
            peer = Identity(self._settings.run, role, name)
            address = self._addresses[name]
            self._channels[name] = dial(self._settings, address, peer, self._recording)
        return self._channels[name]

    async def _read(self, name: str, call: Any) -> None:
        while True:
            error = await self._read_to_the_end(name, call)
            if not self._recovers:
                return self._fail(error)
            try:
                call = await self._call_again(name, error)
            except LostError as lost:
                return self._fail(lost)

    async def _read_to_the_end(self, name: str, call: Any) -> LostError:
        """Take in what a provider tells until its stream ends; return that it was lost."""
        received = self._counts[name]
        try:
            while (response := await call.read()) is not aio.EOF:
                received.append((response.shares if self._masked else response.counts)[:])
                self._received[name] += 1
                if len(received) == 1 and all(self._awaited):
                    self._complete.set()
        except aio.AioRpcError as error:
            return _lost(name, error.details() if error.code() in REFUSALS else None)
        return _lost(name)

    def _fail(self, error: InfrastructureError) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def lost(self) -> None:
        """Raise when a watched provider is lost and the clock does not soon report why."""
        try:
            await self._failure
        except InfrastructureError:
            await asyncio.sleep(CLOCK_FIRST)
            raise

    async def window(self, names: tuple[str, ...], size: int) -> list[tuple[int, ...]]:
        """Return the counts of the next window: a row per instant, one count per named provider."""
        queues = [self._counts[name] for name in names]
        if not all(queues):
            self._complete.clear()
            self._awaited = queues
            try:
                async with asyncio.timeout(self._patience):
                    await self._complete.wait()
            except TimeoutError:
                late = next(name for name in names if not self._counts[name])
                sentence = f"waited {self._patience:g} s for the count of {late}"
                raise LostError(late, sentence) from None
        columns = [queue.popleft() for queue in queues]
        self._taken.update(names)
        for name, column in zip(names, columns, strict=True):
            if len(column) != size:
                sentence = f"{name} disclosed {len(column)} counts in a window of {size} decisions"
                raise MisbehaviourError(name, sentence)
        return list(zip(*columns, strict=True))

    async def load(
        self, nodes: tuple[str, ...], workload: Workload, silent: Collection[int] = ()
    ) -> Load:
        """Return what level `full` discloses for this workload; silent nodes tell nothing."""
        demand = workload.demand if workload.HasField("demand") else None
        request = LookRequest(job=workload.job, category=workload.category, demand=demand)
        names = [name for node, name in enumerate(nodes) if node not in silent]
        told = iter(await asyncio.gather(*(self._resources(name, request) for name in names)))
        nothing = LookResponse(resources=Resources(expected=[inf] * self._categories))
        answers = [nothing if node in silent else next(told) for node in range(len(nodes))]
        resources = [answer.resources for answer in answers]
        for name, each in zip(nodes, resources, strict=True):
            if len(each.expected) != self._categories:
                sentence = f"{name} disclosed {len(each.expected)} service times of categories"
                raise MisbehaviourError(name, f"{sentence}, of which there are {self._categories}")
        load = Load(
            tuple(each.ipt for each in resources),
            tuple(each.ram for each in resources),
            tuple(zip(*(each.expected for each in resources), strict=True)),
            tuple(answer.backlog for answer in answers),
            tuple(answer.service for answer in answers),
        )
        return load.hiding(silent) if silent else load

    async def _resources(self, name: str, question: LookRequest) -> Any:
        if not self._recovers:
            return await self._look(name, question)
        request = LookRequest(window=self._taken[name] - 1)
        request.MergeFrom(question)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while True:
            try:
                return await self._look(name, request)
            except LostError:
                if loop.time() > deadline:
                    raise
                self._resource_calls.pop(name, None)
                await asyncio.sleep(RETRY_EVERY)

    async def _look(self, name: str, request: LookRequest) -> Any:
        if name not in self._resource_calls:
            self._resource_calls[name] = ResourcesServiceStub(self._channel(name)).Look()
        call = self._resource_calls[name]
        try:
            await call.write(request)
            answer = await call.read()
        except aio.AioRpcError as error:
            raise _lost(name, error.details()) from error
        except asyncio.InvalidStateError:  # the call has ended
            answer = aio.EOF
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # it is we who are cancelled, not the call
                raise
            answer = aio.EOF
        if answer is aio.EOF:
            raise _lost(name)
        return answer


def _lost(name: str, why: str | None = None) -> LostError:
    return LostError(name, f"{name} was lost" + (f": {why}" if why else ""))
