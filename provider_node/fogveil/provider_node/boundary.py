"""The boundary: what a provider serves to the agent over gRPC, by disclosure level."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any

import grpc

from fogveil.provider_node.core import ProviderCore
from fogveil.provider_node.secure_sum import SecureSum
from fogveil.v1.boundary_pb2 import WatchRequest, WatchResponse
from fogveil.v1.boundary_pb2_grpc import QueueServiceServicer
from fogveil.v1.full_pb2 import LookRequest, LookResponse
from fogveil.v1.full_pb2_grpc import ResourcesServiceServicer
from fogveil.v1.total_pb2 import TotalServiceWatchRequest, TotalServiceWatchResponse
from fogveil.v1.total_pb2_grpc import TotalServiceServicer

REPLAY_POLL = 0.02
"""Seconds between two looks at how far we are."""
WATCHER_LEAVES_WITHIN = 10.0
"""Seconds that a provider stays after the run for an agent that has not left yet."""


class _WatchStream:
    """Streams one message per window to the agent, which watches.

    Where the run goes on after a loss it keeps an episode's messages: whoever watches again is sent
    what it lacks, and no window has two answers.
    """

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._watcher: asyncio.Future[Any] | None = None
        """The agent's call, once it can be written to; None if it ended before that."""
        self._replaced: asyncio.Future[None] | None = None
        """What the present watcher's call waits for."""
        self._unwatched = asyncio.Event()
        self._unwatched.set()
        self._told: list[Any] = []
        """The messages of this episode, where they are kept."""
        self._known = 0
        """Windows of which the watcher had the messages before we were lost."""
        self._episode = 0
        self._begun = asyncio.Event()

    def begin(self, episode: int) -> None:
        """Begin an episode."""
        self._episode = episode
        self._told.clear()
        self._known = 0
        self._begun.set()

    def _send(self, message: Any) -> Awaitable[None]:
        """Send a window's message; fails if the watcher is lost, which the clock reports."""
        watcher = self._watcher
        if self._keeps:
            self._told.append(message)
            if len(self._told) <= self._known:
                return self._send_when_ready(message)
        if watcher and watcher.done() and (context := watcher.result()):
            return context.write(message)  # type: ignore[no-any-return]
        return self._send_when_ready(message)

    async def _send_when_ready(self, message: Any) -> None:
        if not self._keeps and self._watcher and (watcher := await self._watcher):
            await watcher.write(message)

    async def wait_until_unwatched(self) -> None:
        """Wait until the agent has left, so that it is not told of a lost provider at the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCHER_LEAVES_WITHIN):
                await self._unwatched.wait()

    async def _serve_watcher(self, request: Any, context: Any) -> None:
        if self._watcher and not self._keeps:
            # A count is sent once: a second watcher would take some of the first one's.
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "somebody watches already")
        loop = asyncio.get_running_loop()
        if self._replaced and not self._replaced.done():
            self._replaced.set_result(None)  # else a caller could have us keep calls without end
        self._replaced = replaced = loop.create_future()
        self._watcher = watcher = loop.create_future()
        self._unwatched.clear()
        try:
            # The agent waits for this; a count sent before it would be lost.
            await context.send_initial_metadata(())
            if self._keeps:
                await self._catch_up(request, context, watcher)
            if self._watcher is watcher:
                watcher.set_result(context)
                await replaced  # or until the watcher is gone
        finally:
            if self._watcher is watcher:  # else somebody watches in its place
                self._watcher = None
                self._unwatched.set()
            if not watcher.done():
                watcher.set_result(None)

    async def _catch_up(self, request: Any, context: Any, watcher: asyncio.Future[Any]) -> None:
        """Send the windows that a watcher lacks, until it lacks none."""
        while self._episode < request.episode or not self._begun.is_set():
            self._begun.clear()
            await self._begun.wait()
        place = request.index if request.episode == self._episode else 0
        episode = self._episode
        while self._watcher is watcher and place < len(self._told):
            message = self._told[place]
            if message is None:
                await context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION, f"window {place} was before a crash"
                )
            place += 1
            await context.write(message)
            if self._episode != episode:
                place, episode = 0, self._episode
        self._known = max(place, len(self._told))


class QueueBoundary(_WatchStream, QueueServiceServicer):
    """Levels `count` and `full`: the counts of each window."""

    def __init__(self, *, keeps: bool = False) -> None:
        super().__init__(keeps=keeps)

    def disclose(self, counts: list[int]) -> Awaitable[None]:
        """Send the counts of a window."""
        return self._send(WatchResponse(counts=counts))

    def repeat(self, counts: list[int]) -> Awaitable[None] | None:
        """Take a window's counts of before a crash, for an agent that was lost since."""
        return self.disclose(counts) if self._keeps else None

    async def Watch(  # type: ignore[override]  # noqa: N802, D102 (the protocol's name)
        self, request: WatchRequest, context: Any
    ) -> None:
        await self._serve_watcher(request, context)


class TotalBoundary(_WatchStream, TotalServiceServicer):
    """Level `total`: masked shares of each window's counts, and never the counts themselves."""

    def __init__(self, secure_sum: SecureSum, *, keeps: bool = False) -> None:
        super().__init__(keeps=keeps)
        self._secure_sum = secure_sum

    def disclose(self, counts: list[int]) -> Awaitable[None]:
        """Send the shares of a window; each observation uses up its masks, sent or not."""
        return self._send(TotalServiceWatchResponse(shares=self._secure_sum.shares(counts)))

    def repeat(self, _counts: list[int]) -> Awaitable[None] | None:
        """Count a window of before a crash: with the keys of that time its shares are gone."""
        if self._keeps:
            self._told.append(None)
        return None

    async def Watch(  # type: ignore[override]  # noqa: N802, D102 (the protocol's name)
        self, request: TotalServiceWatchRequest, context: Any
    ) -> None:
        await self._serve_watcher(request, context)


class ResourcesBoundary(ResourcesServiceServicer):
    """What level `full` adds; not registered at any other level."""

    def __init__(self, core: ProviderCore) -> None:
        self._core = core
        """It keeps what could be seen at each window, where the agent may look once more."""

    async def Look(  # noqa: N802, D102 (the protocol's name)
        self, requests: AsyncIterator[LookRequest], context: Any
    ) -> AsyncIterator[LookResponse]:
        async for request in requests:
            # We are back, and go through the episode again: there is no event to wait for.
            while request.HasField("window") and request.window >= len(self._core.views):  # noqa: ASYNC110
                await asyncio.sleep(REPLAY_POLL)
            view = self._core.view(request.window if request.HasField("window") else None)
            if request.category >= len(view.resources.expected):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the category is unknown")
            yield self._core.answer_look(request, view)
