"""The gRPC access control list: who may call which method, enforced by every server.

| method                | may be called by                       |
|-----------------------|----------------------------------------|
| QueueService.Watch    | the agent                              |
| TotalService.Watch    | the agent                              |
| ResourcesService.Look | the agent                              |
| ClockService.Join     | the agent, providers, the Cloud, sources |
| server reflection     | the auditor                            |

What is not in the table is refused, to everybody; so is every identity of another run.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import grpc
from grpc import aio

from fogveil.protocol.identity import AGENT, AUDITOR, CLOUD, PROVIDER, SOURCES, Identity, peer_of
from fogveil.protocol.recording import RecordedContext, Recording

PARTICIPANTS = frozenset((AGENT, PROVIDER, CLOUD, SOURCES))
MAY_CALL: Mapping[str, frozenset[str]] = {
    "/fogveil.v1.QueueService/Watch": frozenset((AGENT,)),
    "/fogveil.v1.TotalService/Watch": frozenset((AGENT,)),
    "/fogveil.v1.ResourcesService/Look": frozenset((AGENT,)),
    "/fogveil.v1.ClockService/Join": PARTICIPANTS,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": frozenset((AUDITOR,)),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": frozenset((AUDITOR,)),
}
"""Roles by method."""
CLAIM_PREFIX = "fogveil/"
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def may_call(peer: Identity | None, method: str, run: str) -> bool:
    """Return whether a peer may call a method of a participant of this run."""
    return peer is not None and peer.run == run and peer.role in MAY_CALL.get(method, ())


class AccessInterceptor(aio.ServerInterceptor):
    """Checks every call against the table, and records what crosses where that is asked for.

    Without identities (`--insecure`) nobody is refused, and callers are who they claim to be.
    """

    def __init__(
        self, run: str, *, secure: bool = True, recording: Recording | None = None
    ) -> None:
        self._run, self._secure, self._recording = run, secure, recording

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        """Wrap the handler of a call."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            # Whoever may not call it is not told whether it exists; the attempt is recorded.
            return grpc.stream_stream_rpc_method_handler(self._guarded(method, _not_served))
        recorded = {}
        if self._recording:
            recorded = {
                "request_deserializer": self._recording.request_parser(
                    method, handler.request_deserializer
                ),
                "response_serializer": self._recording.response_serializer(
                    method, handler.response_serializer
                ),
            }
        kind = next(kind for kind in KINDS if getattr(handler, kind))
        wrapped = self._guarded(method, getattr(handler, kind))
        return handler._replace(**{kind: wrapped}, **recorded)

    def _guarded(self, method: str, behaviour: Any) -> Any:
        async def guarded(request: Any, context: Any) -> Any:
            peer = peer_of(context) if self._secure else None
            if self._recording:
                name = peer.name if peer else claimed_name(context)
                context = RecordedContext(self._recording, context, method, name, request)
            if self._secure and not may_call(peer, method, self._run):
                await _refuse(request, context)
            result = behaviour(request, context)
            if inspect.isasyncgen(result):
                async for message in result:
                    await context.write(message)
                return None
            return await result

        return guarded


def claim(name: str) -> tuple[str, str]:
    """Return the channel option that names the caller where there are no identities."""
    return "grpc.secondary_user_agent", f"{CLAIM_PREFIX}{quote(name, safe='')}"


def claimed_name(context: Any) -> str | None:
    """Return the name that a caller without an identity claims."""
    user_agents = [
        value for key, value in context.invocation_metadata() or () if key == "user-agent"
    ]
    words = " ".join(user_agents).split()
    names = [word.removeprefix(CLAIM_PREFIX) for word in words if word.startswith(CLAIM_PREFIX)]
    return unquote(names[-1]) if names else None


async def _refuse(_request: Any, context: Any) -> None:
    # One text for every refusal, so that it does not tell what is served here.
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this identity may not call this method")


async def _not_served(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this method is not served here")
