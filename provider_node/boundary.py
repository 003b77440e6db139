"""The boundary as gRPC serves it: the count, and at level `full` what that level adds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from fogveil.v1.boundary_pb2 import WatchRequest, WatchResponse
from fogveil.v1.boundary_pb2_grpc import QueueServiceServicer
from fogveil.v1.full_pb2 import LookRequest, LookResponse
from fogveil.v1.full_pb2_grpc import ResourcesServiceServicer
from provider_node.serving import Serving


class QueueBoundary(QueueServiceServicer):
    """Streams the counts of each window to the one who watches."""

    def __init__(self) -> None:
        self._responses: asyncio.Queue[WatchResponse] = asyncio.Queue()
        self._watched = False

    def tell(self, counts: list[int]) -> None:
        """Send the counts of a window."""
        self._responses.put_nowait(WatchResponse(counts=counts))

    async def Watch(  # type: ignore[override]  # noqa: N802, D102 (the protocol's name)
        self, request: WatchRequest, context: Any
    ) -> None:
        del request
        if self._watched:
            # A count is told once: a second watcher would take some of the first one's.
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "somebody watches already")
        self._watched = True
        try:
            await context.send_initial_metadata(())
            while True:
                await context.write(await self._responses.get())
        finally:
            self._watched = False


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
