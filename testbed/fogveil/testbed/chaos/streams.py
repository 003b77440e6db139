"""Simulated gRPC: the calls of our stubs reach our services over the simulated network."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
from grpc import aio

from fogveil.protocol.identity import Identity
from fogveil.testbed.chaos.network import Machine, Network, Wire

KINDS = {"Join": "clock", "Watch": "boundary", "Look": "boundary"}
"""The kind of a stream, by its method."""
GONE = grpc.StatusCode.UNAVAILABLE
CUT_OFF = "the connection was cut"


class Status(NamedTuple):
    """How a call ended."""

    code: Any
    details: str = ""


OK = Status(grpc.StatusCode.OK)


class _Connected(NamedTuple):
    """The server has answered: the connection stands."""


class _HungUp(NamedTuple):
    """The caller is gone."""


class _Metadata(NamedTuple):
    values: Any


class Mailbox:
    """What has arrived at one end, and what it ended with."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._news = asyncio.Event()
        self.end: Any = None

    def put(self, item: Any) -> None:
        """Add a message."""
        self._items.append(item)
        self._news.set()

    def close(self, end: Any) -> None:
        """Let nothing follow."""
        self.end = self.end or end
        self._news.set()

    async def take(self) -> Any:
        """Wait for the next message, and return it; `aio.EOF` after the last one."""
        while not self._items:
            if self.end:
                return aio.EOF
            self._news.clear()
            await self._news.wait()
        return self._items.popleft()


class Stream:
    """One call: what it carries both ways, and both its ends."""

    def __init__(self, network: Network, caller: Any, callee: Any, path: str, codec: Any) -> None:
        self.kind = KINDS.get(path.rpartition("/")[2], "")
        self.ends: tuple[Machine, Machine] = caller, callee
        self.path = path
        self._network, self._caller, self._callee = network, caller, callee
        self.up = Wire(network, (caller, callee), self._at_callee)
        self.down = Wire(network, (callee, caller), self._at_caller)
        self.call = Call(self, *codec)
        self.received = Mailbox()
        """What arrived at the callee."""
        self._handler: asyncio.Task[None] | None = None
        network.connections[self] = None
        self.up.put(_Connected())

    def _at_callee(self, item: Any) -> None:
        if isinstance(item, _Connected):
            self.down.put(item)
        elif isinstance(item, _HungUp):
            self._end_handler()
        elif self.received.end is None:
            self.received.put(item)
            if self._handler is None:
                self._handler = self._callee.spawn(self._serve())

    def _at_caller(self, item: Any) -> None:
        call = self.call
        if isinstance(item, Status):
            call.end(item)
            self.forget()
        elif isinstance(item, _Connected):
            call.connected()
        elif isinstance(item, _Metadata):
            call.admit(item.values)
        else:
            call.received.put(item)

    def _end_handler(self) -> None:
        self.received.close(OK)
        if self._handler:
            self._handler.cancel()

    async def _serve(self) -> None:
        method = self._callee.methods.get(self.path)
        if method is None:
            self.down.put(Status(grpc.StatusCode.UNIMPLEMENTED))
            return
        context = Context(self, method, self._caller.identity)
        status = OK
        try:
            if method.request_streaming:
                answer = method.stream_stream(context.requests(), context)
            else:
                answer = method.unary_stream(await context.read(), context)
            if inspect.isasyncgen(answer):
                async for response in answer:
                    await context.write(response)
            else:
                await answer
        except aio.AbortError:
            status = context.refusal
        self.received.close(OK)
        self.down.put(status)

    def hang_up(self) -> None:
        """End the call at the caller's wish."""
        self.call.end(Status(grpc.StatusCode.CANCELLED))
        self.down.closed = True
        self.up.put_last(_HungUp(), in_flight=True)
        self.forget()

    def lose(self, *, in_flight: bool, seen_by: Iterable[Machine] | None = None) -> None:
        """Break off."""
        at_once = tuple(seen_by or ())
        if self._caller in at_once:
            self.call.end(Status(GONE, CUT_OFF))
            self.down.closed = True
        else:
            self.down.put_last(Status(GONE, CUT_OFF), in_flight=in_flight)
        if self._callee in at_once:
            self._end_handler()
            self.up.closed = True
        else:
            self.up.put_last(_HungUp(), in_flight=in_flight)
        self.forget()

    def forget(self) -> None:
        """Take the call off the network's list."""
        self._network.connections.pop(self, None)


class Call:
    """The caller's end, as `grpc.aio` has it."""

    def __init__(
        self,
        stream: Stream,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
    ) -> None:
        self._stream, self._encode, self._decode = stream, encode, decode
        self.received = Mailbox()
        self._early: list[bytes] | None = []
        """What is written before the connection stands."""
        self._metadata: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def connected(self) -> None:
        """Send what was written until now."""
        early, self._early = self._early or [], None
        for each in early:
            self._stream.up.put(each)

    def admit(self, metadata: Any) -> None:
        """Take the initial metadata."""
        if not self._metadata.done():
            self._metadata.set_result(metadata)

    def end(self, status: Status) -> None:
        """Let nothing follow."""
        self.received.close(status)
        self.admit(())

    async def write(self, message: Any) -> None:
        """Send a message."""
        if self.received.end:
            raise asyncio.InvalidStateError("the call has ended")
        if self._early is None:
            self._stream.up.put(self._encode(message))
        else:
            self._early.append(self._encode(message))

    async def read(self) -> Any:
        """Return the next message, or `aio.EOF`; raise where the call failed."""
        item = await self.received.take()
        if item is not aio.EOF:
            return self._decode(item)
        code, details = self.received.end
        if code is grpc.StatusCode.CANCELLED:
            raise asyncio.CancelledError
        if code is not grpc.StatusCode.OK:
            raise aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details)
        return item

    async def initial_metadata(self) -> Any:
        """Return the callee's first answer; nothing if the call failed before."""
        return await asyncio.shield(self._metadata)

    async def code(self) -> Any:
        """Return the status of a call that has ended."""
        return (await self._status()).code

    async def details(self) -> str:
        """Return why it ended."""
        return (await self._status()).details

    async def _status(self) -> Status:
        while not self.received.end:
            await self.received.take()
        return self.received.end  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """Hang up."""
        if not self.received.end:
            self._stream.hang_up()


class Context:
    """The callee's end, as `grpc.aio` has it."""

    def __init__(self, stream: Stream, method: Any, peer: Identity) -> None:
        self._stream, self._method, self._peer = stream, method, peer
        self.refusal = OK

    async def read(self) -> Any:
        """Return the next message, or `aio.EOF`."""
        item = await self._stream.received.take()
        return item if item is aio.EOF else self._method.request_deserializer(item)

    async def requests(self) -> AsyncIterator[Any]:
        """Yield the messages."""
        while (request := await self.read()) is not aio.EOF:
            yield request

    async def write(self, message: Any) -> None:
        """Send a message."""
        self._stream.down.put(self._method.response_serializer(message))

    async def send_initial_metadata(self, metadata: Any) -> None:
        """Answer the call."""
        self._stream.down.put(_Metadata(metadata))

    async def abort(self, code: Any, details: str = "") -> None:
        """End the call with an error."""
        self.refusal = Status(code, details)
        raise aio.AbortError

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        """Return what the caller has proved."""
        return {"x509_subject_alternative_name": (self._peer.uri.encode(),)}


class Channel:
    """What our stubs need of a channel."""

    def __init__(self, network: Network, caller: Any, address: str) -> None:
        self._network, self._caller, self._address = network, caller, address
        self._calls: list[Call] = []

    def stream_stream(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_options: Any
    ) -> Callable[[], Call]:
        """Return what opens a call."""
        return lambda: self._open(path, request_serializer, response_deserializer)

    def unary_stream(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_options: Any
    ) -> Callable[[Any], Call]:
        """Return what opens a call with one request."""

        def call(request: Any) -> Call:
            opened = self._open(path, lambda each: each, response_deserializer)
            with suppress(StopIteration):
                opened.write(request_serializer(request)).send(None)
            return opened

        return call

    def _open(self, path: str, encode: Any, decode: Any) -> Call:
        network = self._network
        callee = network.machines[self._address]
        stream = Stream(network, self._caller, callee, path, (encode, decode))
        self._calls.append(stream.call)
        if not (callee.alive and callee.methods):  # nobody listens
            stream.lose(in_flight=False)
        return stream.call

    async def close(self) -> None:
        """Hang up all calls."""
        for call in self._calls:
            call.cancel()


class Server:
    """What our services need of a server."""

    def __init__(self, methods: dict[str, Any]) -> None:
        self._methods = methods

    def add_generic_rpc_handlers(self, _handlers: Any) -> None:
        """Take nothing: the same methods are registered, too."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Serve methods."""
        for name, handler in handlers.items():
            self._methods[f"/{service}/{name}"] = handler

    async def stop(self, _grace: float | None) -> None:
        """Serve nothing more."""
        self._methods.clear()
