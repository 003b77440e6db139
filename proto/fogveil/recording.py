"""A record of what crosses a participant's gRPC channels, byte for byte, in a file of its own.

It is made at the channel, on both sides: messages as they are on the wire, and beside them the
metadata, the trailers and the error texts, which can carry a secret as well as a field can.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, cast

from grpc import aio

M = TypeVar("M")
TRAFFIC = "traffic.jsonl"
"""The file in the participant's folder: one crossing a line."""
REQUEST, RESPONSE = "request", "response"
METADATA, INITIAL, TRAILING, STATUS = "metadata", "initial metadata", "trailing metadata", "status"
MESSAGES = (REQUEST, RESPONSE)
DELIVERY = "delivery"
"""Of the MQTT broker; the topic stands for the method."""

FLUSH_EVERY = 0.1
"""Seconds: somebody may be following."""

_PEER: ContextVar[str] = ContextVar("peer")
"""Who is at the other end of the call that a server is serving."""


_OPEN: list[Recording] = []


def close_all() -> None:
    """Write the rest of every recording of this process: it ends without another word."""
    for recording in _OPEN:
        recording.close()


class Recording:
    """Notes messages before they are read and after they are written."""

    def __init__(self, folder: Path, name: str, now: Callable[[], float]) -> None:
        self._name = name
        self._now = now
        """Returns the simulated time."""
        descriptor = os.open(folder / TRAFFIC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._flushing = False
        self._words: dict[tuple[str, str, str, str], str] = {}
        """How a line says who sent what kind to whom, spelled once."""
        self._unread: dict[int, bytes] = {}
        """Requests that were parsed before it was known who sent them."""
        self._tasks: set[asyncio.Task[None]] = set()
        _OPEN.append(self)

    def note(
        self, sender: str, receiver: str, method: str, kind: str, content: Any, **more: str
    ) -> None:
        """Add a crossing: the bytes of a message, or what else went with it."""
        # On the way of every message: so the line is put together from what is spelled already.
        key = sender, receiver, method, kind
        words = self._words.get(key)
        if words is None:
            told = {"from": sender, "to": receiver, "method": method, "kind": kind}
            words = self._words[key] = json.dumps(told)[1:-1]
        if isinstance(content, bytes):
            what = f'"bytes": "{content.hex()}"'
        else:
            what = f'"text": {json.dumps(content)}'
        if more:
            what += f", {json.dumps(more)[1:-1]}"
        file = self._file
        if file.closed:
            return
        file.write(f'{{"at": {time.time()!r}, "simulated": {self._now()!r}, {words}, {what}}}\n')
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(FLUSH_EVERY, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._file.closed:
            self._file.flush()

    def delivered(self, topic: str, payload: bytes) -> None:
        """Note what the broker delivered."""
        self.note("broker", self._name, topic, DELIVERY, payload)

    def close(self) -> None:
        """Write the rest."""
        self._file.close()

    # --- the client's side -----------------------------------------------------------------------

    def channel(self, channel: aio.Channel, peer: str) -> aio.Channel:
        """Return a channel to `peer` of which everything is noted."""
        return cast("aio.Channel", _RecordedChannel(self, channel, peer))

    def sent(self, peer: str, method: str, write: Callable[[M], bytes]) -> Callable[[M], bytes]:
        """Return a serialiser of requests that notes what it writes to `peer`."""

        def noting(message: M) -> bytes:
            payload = write(message)
            self.note(self._name, peer, method, REQUEST, payload)
            return payload

        return noting

    def received(self, peer: str, method: str, read: Callable[[bytes], M]) -> Callable[[bytes], M]:
        """Return a parser of responses that notes what it reads from `peer`."""

        def noting(payload: bytes) -> M:
            self.note(peer, self._name, method, RESPONSE, payload)
            return read(payload)

        return noting

    def follow(self, peer: str, method: str, call: Any) -> None:
        """Note what comes with a call besides messages, when it comes."""
        task = asyncio.ensure_future(self._follow(peer, method, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, peer: str, method: str, call: Any) -> None:
        self.note(peer, self._name, method, INITIAL, _pairs(await call.initial_metadata()))
        trailing = _pairs(await call.trailing_metadata())
        self.note(peer, self._name, method, TRAILING, trailing)
        status = [(await call.code()).name, await call.details()]
        self.note(peer, self._name, method, STATUS, status)

    # --- the server's side -----------------------------------------------------------------------

    def called(self, peer: str, address: str, method: str, metadata: Any, request: Any) -> None:
        """Note who calls, from where, with what; let the messages of this call be theirs."""
        _PEER.set(peer)
        self.note(peer, self._name, method, METADATA, _pairs(metadata), address=address)
        early = self._unread.pop(id(request), None)
        if early is not None:
            self.note(peer, self._name, method, REQUEST, early)

    def answered(self, peer: str, method: str, kind: str, content: Any) -> None:
        """Note what a server answers besides messages."""
        self.note(self._name, peer, method, kind, content)

    def reading(self, method: str, read: Callable[[bytes], M]) -> Callable[[bytes], M]:
        """Return a parser of requests that notes what it reads."""

        def noting(payload: bytes) -> M:
            message = read(payload)
            peer = _PEER.get(None)
            if peer is None:
                self._unread[id(message)] = payload
            else:
                self.note(peer, self._name, method, REQUEST, payload)
            return message

        return noting

    def writing(self, method: str, write: Callable[[M], bytes]) -> Callable[[M], bytes]:
        """Return a serialiser of responses that notes what it writes."""

        def noting(message: M) -> bytes:
            payload = write(message)
            self.note(self._name, _PEER.get("?"), method, RESPONSE, payload)
            return payload

        return noting


class NotingContext:
    """A server's view of a call that notes what is sent besides messages."""

    def __init__(
        self, recording: Recording, context: Any, method: str, peer: str | None, request: Any = None
    ) -> None:
        self._recording, self._context, self._method = recording, context, method
        address = context.peer()
        self._peer = peer or address
        recording.called(self._peer, address, method, context.invocation_metadata(), request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        """Send a message, from whatever task: it is this call's."""
        before = _PEER.set(self._peer)
        try:
            await self._context.write(message)
        finally:
            _PEER.reset(before)

    async def send_initial_metadata(self, metadata: Any) -> None:
        """Send initial metadata, and note it."""
        self._recording.answered(self._peer, self._method, INITIAL, _pairs(metadata))
        await self._context.send_initial_metadata(metadata)

    def set_trailing_metadata(self, metadata: Any) -> None:
        """Set the trailers, and note them."""
        self._recording.answered(self._peer, self._method, TRAILING, _pairs(metadata))
        self._context.set_trailing_metadata(metadata)

    def set_details(self, details: str) -> None:
        """Set the error text, and note it."""
        self._recording.answered(self._peer, self._method, STATUS, details)
        self._context.set_details(details)

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> None:
        """End the call with an error, and note its text."""
        status = [code.name, details, _pairs(trailing_metadata)]
        self._recording.answered(self._peer, self._method, STATUS, status)
        await self._context.abort(code, details, trailing_metadata)


class _RecordedChannel:
    """What a generated stub asks a channel for, with serialisers that note what passes them."""

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
                request_serializer=self._recording.sent(self._peer, method, request_serializer),
                response_deserializer=self._recording.received(
                    self._peer, method, response_deserializer
                ),
                **options,
            )

            def begin(*arguments: Any, **settings: Any) -> Any:
                call = callable_(*arguments, **settings)
                self._recording.follow(self._peer, method, call)
                return call

            return begin

        return method_of


def _pairs(metadata: Any) -> list[list[str]]:
    return [
        [key, value if isinstance(value, str) else value.hex()] for key, value in metadata or ()
    ]
