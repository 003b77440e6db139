"""The agent's gRPC client at the boundary: the providers' counts, window by window."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from grpc import StatusCode, aio

from fogveil.agent.decision_record import UNSEEN
from fogveil.agent.marks import Marks
from fogveil.agent.policy import Level, Load
from fogveil.agent.settings import AgentSettings
from fogveil.core.errors import InfrastructureError, LostError
from fogveil.protocol.channels import REFUSALS, dial
from fogveil.protocol.identity import CLOUD, PROVIDER, Identity
from fogveil.protocol.limits import LARGEST_WINDOW
from fogveil.protocol.message_order import PATIENCE, RECOVERY_PATIENCE
from fogveil.protocol.recording import Recording
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
LOOK_AGAIN_AFTER = 5.0
"""Seconds without an answer after which a provider is asked again, where it may have been lost."""
CLOCK_FIRST = 5.0
"""Seconds in which the clock may report why a provider left: mostly because the run is over."""
MOST_AHEAD = 16
"""Windows of a provider that wait to be taken: those of an honest one are fewer, unless the agent
was lost and is told everything again. More are left in the connection, which then is full."""
MOST_CLOSED = 10
"""Streams in a row that a provider ends without having told anything."""
LOOK_EVERY = 0.25
"""Seconds between two looks at who is late."""
TIMER_SLACK = 0.01
"""Seconds by which a timer may go off early."""


class BoundaryClient:
    """Receives the streams of all watched providers.

    Where the run goes on after a loss, it watches a provider again whose stream breaks off, and
    says which windows it has. One that misbehaves is marked, when its count is next needed.
    """

    def __init__(
        self,
        settings: AgentSettings,
        marks: Marks,
        recording: Recording | None,
    ) -> None:
        view, addresses = settings.view, settings.providers
        self._settings, self._cloud, self._marks = settings, view.cloud, marks
        self._categories = len(view.categories)
        self._nothing = LookResponse(resources=Resources(expected=[inf] * self._categories))
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
        self.repeats: Callable[[], bool] = lambda: False
        """Tells whether we were lost, and have not yet said everything once more."""
        self._room = asyncio.Event()
        """Set when windows were taken."""
        self._answered: dict[str, float] = {}
        """Since when each provider's stream is there."""
        self._closed: Counter[str] = Counter()
        """Streams in a row that each has ended without having told anything."""
        self._returned: set[str] = set()
        """Whose stream broke off, and who has told nothing since."""
        self.begin(0)

    def begin(self, episode: int) -> None:
        """Begin an episode: windows are counted anew."""
        self._episode = episode
        self._received: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()

    async def watch(self, names: Iterable[str]) -> None:
        """Watch these providers, unless they are watched already."""
        new = [name for name in names if name not in self._counts and self._is_trusted(name)]
        await asyncio.gather(*(self._connect(name) for name in new))

    def _is_trusted(self, name: str) -> bool:
        return name not in self._marks.names and not self._marks.is_known(name)

    async def unwatch(self, names: Iterable[str]) -> None:
        """Watch these providers no more: they are about to be gone."""
        for name in names:
            if name not in self._counts:
                continue
            if reader := self._readers.pop(name, None):
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
            try:
                call = await self._call_again(name, error)
            except LostError:
                if not self._marks.can_be(name):
                    raise
                self._counts[name] = deque()  # which stays empty: it will be marked
                return
        self._counts[name] = deque()
        self._readers[name] = asyncio.ensure_future(self._read(name, call))
        self._answered[name] = asyncio.get_running_loop().time()

    async def _call(self, name: str) -> Any:
        """Watch a provider: return the call once it is answered."""
        call = self._counts_call(name)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await call.initial_metadata()
        except TimeoutError as error:
            raise _lost(name, f"no answer within {CONNECT_TIMEOUT:g} s") from error
        except aio.AioRpcError as error:
            self._count_end(name, error.code())
            raise _lost(name, error.details()) from error
        self._answered[name] = asyncio.get_running_loop().time()
        return call

    async def _call_again(self, name: str, error: InfrastructureError) -> Any:
        """Watch a provider again that is back, or raise the error if it does not come back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while loop.time() < deadline and not self._closes(name):
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

    def _closes(self, name: str) -> bool:
        """Return whether a provider ends its stream again and again, and may be marked for it."""
        return self._closed[name] >= MOST_CLOSED and self._marks.can_be(name)

    async def _read(self, name: str, call: Any) -> None:
        while True:
            error = await self._read_to_the_end(name, call)
            self._answered.pop(name, None)
            if not self._recovers:
                return self._fail(error)
            self._returned.add(name)
            try:
                call = await self._call_again(name, error)
            except LostError as lost:
                # Who may be marked is, when its count is awaited.
                return None if self._marks.can_be(name) else self._fail(lost)

    async def _read_to_the_end(self, name: str, call: Any) -> LostError:
        """Take in what a provider tells until its stream ends; return that it was lost."""
        received, before = self._counts[name], self._received[name]
        try:
            while (response := await call.read()) is not aio.EOF:
                told = response.shares if self._masked else response.counts
                received.append(told[: LARGEST_WINDOW + 1])
                self._received[name] += 1
                if len(received) == 1 and all(self._awaited):
                    self._complete.set()
                while len(received) >= MOST_AHEAD:
                    self._room.clear()
                    await self._room.wait()
        except aio.AioRpcError as error:
            code, details = error.code(), error.details()
        else:
            code, details = StatusCode.OK, None
        if self._received[name] > before:
            self._closed[name] = 0
        self._count_end(name, code)
        return _lost(name, details if code in REFUSALS else None)

    def _count_end(self, name: str, code: StatusCode) -> None:
        """Count streams that a provider itself ends; one that is gone may be started again."""
        if code is StatusCode.UNAVAILABLE:
            self._closed[name] = 0
        elif code not in REFUSALS:
            self._closed[name] += 1

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
        """Return the counts of the next window: a row per instant, one count per named provider.

        Those of a provider that is marked only now are `UNSEEN`.
        """
        if self._marks.names:
            await self.unwatch(tuple(self._marks.names))
        await self._wait_for([name for name in names if self._is_trusted(name)])
        columns = [self._take(name, size) for name in names]
        self._taken.update(names)
        self._room.set()
        return list(zip(*columns, strict=True))

    def _take(self, name: str, size: int) -> Sequence[int]:
        """Return what a provider told of a window, and mark it if that cannot be."""
        marks = self._marks
        column: Sequence[int] | None = None
        if marks.is_known(name):
            column = marks.repeat(name, size)
        elif name not in marks.names:
            ahead = len(self._counts[name])
            column = self._counts[name].popleft()
            self._returned.discard(name)
            if len(column) != size:
                told = str(len(column)) if len(column) <= LARGEST_WINDOW else "too many"
                why = f"{name} disclosed {told} counts in a window of {size} decisions"
                marks.add(name, why)
            elif ahead >= MOST_AHEAD and marks.enabled and not self.repeats():
                marks.add(name, f"{name} disclosed the counts of windows that nobody was granted")
        if column is None or name in marks.names:
            return [UNSEEN] * size
        marks.hear(name, column)
        return column

    async def _wait_for(self, names: Sequence[str]) -> None:
        """Wait until these providers have told of the next window, or are marked."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        while awaited := [n for n in names if n not in self._marks.names and not self._counts[n]]:
            self._complete.clear()
            self._awaited = [self._counts[n] for n in names if n not in self._marks.names]
            try:
                async with asyncio.timeout(LOOK_EVERY if self._marks.enabled else self._patience):
                    await self._complete.wait()
            except TimeoutError:
                self._judge_late(awaited, begin, among=len(self._awaited))

    def _judge_late(self, names: Sequence[str], begin: float, among: int) -> None:
        """Mark who should have told by now; raise LostError where nobody may be marked for it.

        `begin` is since when they are awaited. Where nobody has told, it is nobody's fault.
        """
        now = asyncio.get_running_loop().time() + TIMER_SLACK
        late = [name for name in names if not self._counts[name]]
        others_told = len(late) < among
        for name in late:
            if self._closes(name):
                closed = f"{self._closed[name]} times without having told anything"
                self._marks.add(name, f"{name} ended the stream of its counts {closed}")
                continue
            patience = self._settings.late_after
            since = max(begin, self._answered.get(name, inf))
            if name in self._returned or since == inf:  # it may have to be started again first
                patience, since = self._patience, begin
            patience = min(patience, self._patience)
            if now < since + patience:
                continue
            if others_told and self._marks.can_be(name):
                self._marks.add(name, f"{name} did not tell its count within {patience:g} s")
            elif now >= begin + self._patience:
                raise LostError(name, f"waited {self._patience:g} s for the count of {name}")

    async def load(
        self, nodes: tuple[str, ...], workload: Workload, silent: Collection[int] = ()
    ) -> Load:
        """Return what level `full` discloses for this workload; silent nodes tell nothing."""
        demand = workload.demand if workload.HasField("demand") else None
        request = LookRequest(job=workload.job, category=workload.category, demand=demand)
        names = [name for node, name in enumerate(nodes) if node not in silent]
        told = iter(await asyncio.gather(*(self._resources(name, request) for name in names)))
        answers = [self._nothing if node in silent else next(told) for node in range(len(nodes))]
        for node, name in enumerate(nodes):
            number = len(answers[node].resources.expected)
            if number != self._categories:
                sentence = f"{name} disclosed {number} service times of categories"
                why = f"{sentence}, of which there are {self._categories}"
                self._marks.add(name, why)
                answers[node] = self._nothing
            elif node not in silent and name not in self._marks.names:
                self._marks.hear_look(name, answers[node].SerializeToString())
        resources = [answer.resources for answer in answers]
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
        if self._marks.is_known(name):
            repeated = self._marks.repeat_look(name)
            return self._nothing if repeated is None else LookResponse.FromString(repeated)
        request = LookRequest(window=self._taken[name] - 1)
        request.MergeFrom(question)
        loop, lost = asyncio.get_running_loop(), False
        begin = loop.time()
        while True:
            patience = self._patience
            if self._marks.can_be(name) and not lost:
                patience = min(patience, self._settings.late_after)
            left = begin + patience - loop.time()
            if left <= 0:
                why = f"{name} did not tell its resources within {patience:g} s"
                if not self._marks.can_be(name):
                    raise LostError(name, why)
                self._marks.add(name, why)
                return self._nothing
            try:
                # A call whose channel is closed meanwhile may never end.
                async with asyncio.timeout(min(left, LOOK_AGAIN_AFTER)):
                    return await self._look(name, request)
            except (LostError, TimeoutError) as error:
                lost = lost or isinstance(error, LostError)
                if call := self._resource_calls.pop(name, None):
                    call.cancel()
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
