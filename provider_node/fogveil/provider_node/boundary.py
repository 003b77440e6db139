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

WATCHER_LEAVES_WITHIN = 10.0
"""Seconds that a provider stays after the run for an agent that has not left yet."""


class _WatchStream:
    """Streams one message per window to the agent, which watches."""

    def __init__(self) -> None:
        self._watcher: asyncio.Future[Any] | None = None
        """The agent's call, once it can be written to; None if it ended before that."""
        self._unwatched = asyncio.Event()
        self._unwatched.set()

    def _send(self, message: Any) -> Awaitable[None]:
        """Send a window's message; fails if the watcher is lost, which the clock reports."""
        watcher = self._watcher
        if watcher and watcher.done() and (context := watcher.result()):
            return context.write(message)  # type: ignore[no-any-return]
        return self._send_when_ready(message)

    async def _send_when_ready(self, message: Any) -> None:
        if self._watcher and (watcher := await self._watcher):
            await watcher.write(message)

    async def wait_until_unwatched(self) -> None:
        """Wait until the agent has left, so that it is not told of a lost provider at the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCHER_LEAVES_WITHIN):
                await self._unwatched.wait()

    async def _serve_watcher(self, context: Any) -> None:
        if self._watcher:
            # A count is sent once: a second watcher would take some of the first one's.
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "somebody watches already")
        loop = asyncio.get_running_loop()
        self._watcher = watcher = loop.create_future()
        self._unwatched.clear()
        try:
            # The agent waits for this; a count sent before it would be lost.
            await context.send_initial_metadata(())
            watcher.set_result(context)
            await loop.create_future()  # until the watcher is gone
        finally:
            self._watcher = None
            self._unwatched.set()
            if not watcher.done():
                watcher.set_result(None)


class QueueBoundary(_WatchStream, QueueServiceServicer):
    """Levels `count` and `full`: the counts of each window."""

    def disclose(self, counts: list[int]) -> Awaitable[None]:
        """Send the counts of a window."""
        return self._send(WatchResponse(counts=counts))

    async def Watch(  # type: ignore[override]  # noqa: N802, D102 (the protocol's name)
        self, request: WatchRequest, context: Any
    ) -> None:
        del request
        await self._serve_watcher(context)


class TotalBoundary(_WatchStream, TotalServiceServicer):
    """Level `total`: masked shares of each window's counts, and never the counts themselves."""

    def __init__(self, secure_sum: SecureSum) -> None:
        super().__init__()
        self._secure_sum = secure_sum

    def disclose(self, counts: list[int]) -> Awaitable[None]:
        """Send the shares of a window; each observation uses up its masks, sent or not."""
        return self._send(TotalServiceWatchResponse(shares=self._secure_sum.shares(counts)))

    async def Watch(  # type: ignore[override]  # noqa: N802, D102 (the protocol's name)
        self, request: TotalServiceWatchRequest, context: Any
    ) -> None:
        del request
        await self._serve_watcher(context)


class ResourcesBoundary(ResourcesServiceServicer):
    """What level `full` adds; not registered at any other level."""

    def __init__(self, core: ProviderCore) -> None:
        self._core = core

    async def Look(  # noqa: N802, D102 (the protocol's name)
        self, requests: AsyncIterator[LookRequest], context: Any
    ) -> AsyncIterator[LookResponse]:
        async for request in requests:
            resources = self._core.resources()
            if request.category >= len(resources.expected):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the category is unknown")
            answer = self._core.answer_look(request)
            answer.resources.CopyFrom(resources)
            yield answer
