"""A recording of what crosses a participant's gRPC channels, byte for byte.

It is taken at both ends of a channel: messages as they are on the wire, and beside them metadata,
trailers and error texts, which can carry a secret as well as a field can.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, cast

from grpc import aio

from fogveil.core.files import open_private

M = TypeVar("M")
TRAFFIC = "traffic.jsonl"
"""The file in the participant's folder: one crossing per line."""
REQUEST, RESPONSE = "request", "response"
METADATA, INITIAL, TRAILING, STATUS = "metadata", "initial metadata", "trailing metadata", "status"
MESSAGES = (REQUEST, RESPONSE)
DELIVERY = "delivery"
"""A message from the MQTT broker; its topic stands in the place of the method."""

FLUSH_EVERY = 0.1
"""Seconds: `fogveil inspect --live` reads along."""

_PEER: ContextVar[str] = ContextVar("peer")
"""The peer of the call that a server is serving."""


_OPEN: list[Recording] = []


def close_all() -> None:
    """Close every recording of this process before it exits."""
    for recording in _OPEN:
        recording.close()


class Recording:
    """Writes one line for each crossing."""

    def __init__(
        self, folder: Path, name: str, now: Callable[[], float], *, may_crash: bool = False
    ) -> None:
        """Begin to record, or go on after the process before this one has crashed.

        One that `may_crash` flushes what it writes as soon as it has nothing else to do.
        """
        self._flush_every = 0.0 if may_crash else FLUSH_EVERY
        self._name = name
        self._now = now
        """Returns the simulated time."""
        self._file = open_private(folder / TRAFFIC, "a")
        self._flushing = False
        self._prefixes: dict[tuple[str, str, str, str], str] = {}
        """The JSON of (sender, receiver, method, kind), which recur in every line."""
        self._unread: dict[int, bytes] = {}
        """Requests that were parsed before their sender was known, by object id."""
        self._tasks: set[asyncio.Task[None]] = set()
        _OPEN.append(self)

    def write(
        self, sender: str, receiver: str, method: str, kind: str, content: Any, **more: str
    ) -> None:
        """Add a crossing: the bytes of a message, or the text of what came with it."""
        # This runs for every message, so the recurring part of the line is serialized once.
        key = sender, receiver, method, kind
        prefix = self._prefixes.get(key)
        if prefix is None:
            fields = {"from": sender, "to": receiver, "method": method, "kind": kind}
            prefix = self._prefixes[key] = json.dumps(fields)[1:-1]
        if isinstance(content, bytes):
            body = f'"bytes": "{content.hex()}"'
        else:
            body = f'"text": {json.dumps(content)}'
        if more:
            body += f", {json.dumps(more)[1:-1]}"
        file = self._file
        if file.closed:
            return
        file.write(f'{{"at": {time.time()!r}, "simulated": {self._now()!r}, {prefix}, {body}}}\n')
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(self._flush_every, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._file.closed:
            self._file.flush()

    def record_delivery(self, topic: str, payload: bytes) -> None:
        """Record a message that the broker delivered."""
        self.write("broker", self._name, topic, DELIVERY, payload)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # --- the client's side -----------------------------------------------------------------------

    def channel(self, channel: aio.Channel, peer: str) -> aio.Channel:
        """Return a channel to `peer` that records everything."""
        return cast("aio.Channel", _RecordedChannel(self, channel, peer))

    def recorded_request(
        self, peer: str, method: str, write: Callable[[M], bytes]
    ) -> Callable[[M], bytes]:
        """Return a serializer of requests that records what it writes to `peer`."""

        def recording(message: M) -> bytes:
            payload = write(message)
            self.write(self._name, peer, method, REQUEST, payload)
            return payload

        return recording

    def recorded_response(
        self, peer: str, method: str, read: Callable[[bytes], M]
    ) -> Callable[[bytes], M]:
        """Return a parser of responses that records what it reads from `peer`."""

        def recording(payload: bytes) -> M:
            self.write(peer, self._name, method, RESPONSE, payload)
            return read(payload)

        return recording

    def record_call(self, peer: str, method: str, call: Any) -> None:
        """Record metadata, trailers and status of a call as they arrive."""
        task = asyncio.ensure_future(self._record_call(peer, method, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record_call(self, peer: str, method: str, call: Any) -> None:
        self.write(peer, self._name, method, INITIAL, _pairs(await call.initial_metadata()))
        trailing = _pairs(await call.trailing_metadata())
        self.write(peer, self._name, method, TRAILING, trailing)
        status = [(await call.code()).name, await call.details()]
        self.write(peer, self._name, method, STATUS, status)

    # --- the server's side -----------------------------------------------------------------------

    def begin_call(self, peer: str, address: str, method: str, metadata: Any, request: Any) -> None:
        """Record who calls, from where, with which metadata; the call's messages are theirs."""
        _PEER.set(peer)
        self.write(peer, self._name, method, METADATA, _pairs(metadata), address=address)
        early = self._unread.pop(id(request), None)
        if early is not None:
            self.write(peer, self._name, method, REQUEST, early)

    def record_answer(self, peer: str, method: str, kind: str, content: Any) -> None:
        """Record what a server answers besides messages."""
        self.write(self._name, peer, method, kind, content)

    def request_parser(self, method: str, read: Callable[[bytes], M]) -> Callable[[bytes], M]:
        """Return a parser of requests that records what it reads."""

        def recording(payload: bytes) -> M:
            message = read(payload)
            peer = _PEER.get(None)
            if peer is None:
                self._unread[id(message)] = payload
            else:
                self.write(peer, self._name, method, REQUEST, payload)
            return message

        return recording

    def response_serializer(self, method: str, write: Callable[[M], bytes]) -> Callable[[M], bytes]:
        """Return a serializer of responses that records what it writes."""

        def recording(message: M) -> bytes:
            payload = write(message)
            self.write(self._name, _PEER.get("?"), method, RESPONSE, payload)
            return payload

        return recording


class RecordedContext:
    """A server's view of a call that records what is sent besides messages."""

    def __init__(
        self, recording: Recording, context: Any, method: str, peer: str | None, request: Any = None
    ) -> None:
        self._recording, self._context, self._method = recording, context, method
        address = context.peer()
        self._peer = peer or address
        recording.begin_call(self._peer, address, method, context.invocation_metadata(), request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        """Send a message of this call, from whatever task."""
        before = _PEER.set(self._peer)
        try:
            await self._context.write(message)
        finally:
            _PEER.reset(before)

    async def send_initial_metadata(self, metadata: Any) -> None:
        """Send initial metadata, and record it."""
        self._recording.record_answer(self._peer, self._method, INITIAL, _pairs(metadata))
        await self._context.send_initial_metadata(metadata)

    def set_trailing_metadata(self, metadata: Any) -> None:
        """Set the trailers, and record them."""
        self._recording.record_answer(self._peer, self._method, TRAILING, _pairs(metadata))
        self._context.set_trailing_metadata(metadata)

    def set_details(self, details: str) -> None:
        """Set the error text, and record it."""
        self._recording.record_answer(self._peer, self._method, STATUS, details)
        self._context.set_details(details)

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> None:
        """End the call with an error, and record its text."""
        status = [code.name, details, _pairs(trailing_metadata)]
        self._recording.record_answer(self._peer, self._method, STATUS, status)
        await self._context.abort(code, details, trailing_metadata)


class _RecordedChannel:
    """A channel whose methods record what they send and receive."""

    def __init__(self, recording: Recording, channel: aio.Channel, peer: str) -> None:
        self._recording, self._channel, self._peer = recording, channel, peer

    def __getattr__(self, kind: str) -> Any:
        make = getattr(self._channel, kind)
        if kind not in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            return make

        def method_of(
            method: str, *, request_serializer: Any, response_deserializer: Any, **options: Any
        ) -> Any:
            callable_ = make(
                method,
                request_serializer=self._recording.recorded_request(
                    self._peer, method, request_serializer
                ),
                response_deserializer=self._recording.recorded_response(
                    self._peer, method, response_deserializer
                ),
                **options,
            )

            def begin(*arguments: Any, **settings: Any) -> Any:
                call = callable_(*arguments, **settings)
                self._recording.record_call(self._peer, method, call)
                return call

            return begin

        return method_of


def _pairs(metadata: Any) -> list[list[str]]:
    return [
        [key, value if isinstance(value, str) else value.hex()] for key, value in metadata or ()
    ]
