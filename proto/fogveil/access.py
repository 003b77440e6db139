"""Who may call what over gRPC: one table, and the gate at every server that holds it.

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

from fogveil.identity import AGENT, AUDITOR, CLOUD, PROVIDER, SOURCES, Identity, peer_of
from fogveil.recording import NotingContext, Recording

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
CLAIM = "fogveil/"
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def may_call(peer: Identity | None, method: str, run: str) -> bool:
    """Tell whether somebody may call a method of a participant of this run."""
    return peer is not None and peer.run == run and peer.role in MAY_CALL.get(method, ())


class Gate(aio.ServerInterceptor):
    """Stands before every method of a server: refuses by the table, and records what passes.

    Without identities (`--insecure`) nobody can be refused, and everybody is who they say.
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
            # Who may not call it is not told that it is not there; and the try is recorded.
            return grpc.stream_stream_rpc_method_handler(self._guarded(method, _miss))
        taps = {}
        if self._recording:
            taps = {
                "request_deserializer": self._recording.reading(
                    method, handler.request_deserializer
                ),
                "response_serializer": self._recording.writing(method, handler.response_serializer),
            }
        kind = next(kind for kind in KINDS if getattr(handler, kind))
        wrapped = self._guarded(method, getattr(handler, kind))
        return handler._replace(**{kind: wrapped}, **taps)

    def _guarded(self, method: str, behaviour: Any) -> Any:
        async def guarded(request: Any, context: Any) -> Any:
            peer = peer_of(context) if self._secure else None
            if self._recording:
                name = peer.name if peer else claimed_name(context)
                context = NotingContext(self._recording, context, method, name, request)
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
    """Return the channel option by which a participant says who it is, where nobody proves it."""
    return "grpc.secondary_user_agent", f"{CLAIM}{quote(name, safe='')}"


def claimed_name(context: Any) -> str | None:
    """Return who somebody says to be."""
    agents = [value for key, value in context.invocation_metadata() or () if key == "user-agent"]
    words = " ".join(agents).split()
    names = [word.removeprefix(CLAIM) for word in words if word.startswith(CLAIM)]
    return unquote(names[-1]) if names else None


async def _refuse(_request: Any, context: Any) -> None:
    # One text for every refusal: what exists here is nobody's business.
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this identity may not call this method")


async def _miss(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this method is not served here")
