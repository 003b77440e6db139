"""The boundary as gRPC serves it: the count, its share of the total, or all of level `full`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc

from fogveil.v1.boundary_pb2 import WatchRequest, WatchResponse
from fogveil.v1.boundary_pb2_grpc import QueueServiceServicer
from fogveil.v1.full_pb2 import LookRequest, LookResponse
from fogveil.v1.full_pb2_grpc import ResourcesServiceServicer
from fogveil.v1.total_pb2 import TotalServiceWatchRequest, TotalServiceWatchResponse
from fogveil.v1.total_pb2_grpc import TotalServiceServicer
from provider_node.serving import Serving
from provider_node.totals import Totals


class _Watched:
    """Streams a message for each window to the one who watches."""

    def __init__(self) -> None:
        self._watcher: asyncio.Future[Any] | None = None
        """Who watches, once it can be written to; None comes of one who left before that."""

    def _send(self, message: Any) -> Awaitable[None]:
        """Send what is told of a window; fail if the watcher is lost, as the clock will say."""
        watcher = self._watcher
        if watcher and watcher.done() and (context := watcher.result()):
            return context.write(message)  # type: ignore[no-any-return]
        return self._send_soon(message)

    async def _send_soon(self, message: Any) -> None:
        if self._watcher and (watcher := await self._watcher):
            await watcher.write(message)

    async def _attend(self, context: Any) -> None:
        if self._watcher:
            # A count is told once: a second watcher would take some of the first one's.
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "somebody watches already")
        loop = asyncio.get_running_loop()
        self._watcher = watcher = loop.create_future()
        try:
            # The agent goes on as soon as it has this; a message before its end would be lost.
            await context.send_initial_metadata(())
            watcher.set_result(context)
            await loop.create_future()  # until the watcher is gone
        finally:
            self._watcher = None
            if not watcher.done():
                watcher.set_result(None)


class QueueBoundary(_Watched, QueueServiceServicer):
    """What levels `count` and `full` tell: the counts of each window."""

    def tell(self, counts: list[int]) -> Awaitable[None]:
        """Send the counts of a window."""
        return self._send(WatchResponse(counts=counts))

    async def Watch(  # type: ignore[override]  # noqa: N802, D102 (the protocol's name)
        self, request: WatchRequest, context: Any
    ) -> None:
        del request
        await self._attend(context)


class TotalBoundary(_Watched, TotalServiceServicer):
    """What level `total` tells, in place of the counts; there is no way past the masks."""

    def __init__(self, totals: Totals) -> None:
        super().__init__()
        self._totals = totals

    def tell(self, counts: list[int]) -> Awaitable[None]:
        """Send the shares of a window; each observation uses its masks up, watched or not."""
        return self._send(TotalServiceWatchResponse(shares=self._totals.shares(counts)))

    async def Watch(  # type: ignore[override]  # noqa: N802, D102 (the protocol's name)
        self, request: TotalServiceWatchRequest, context: Any
    ) -> None:
        del request
        await self._attend(context)


class ResourcesBoundary(ResourcesServiceServicer):
    """What level `full` adds; not registered at any other level."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def Look(  # noqa: N802, D102 (the protocol's name)
        self, requests: AsyncIterator[LookRequest], context: Any
    ) -> AsyncIterator[LookResponse]:
        resources = self._serving.resources()
        async for request in requests:
            if request.category >= len(resources.expected):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the category is unknown")
            answer = self._serving.look(request)
            answer.resources.CopyFrom(resources)
            yield answer
