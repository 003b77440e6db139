"""A record of what crosses a participant's gRPC channels, byte for byte, in a file of its own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from grpc import aio

M = TypeVar("M")
TRAFFIC = "traffic.jsonl"
"""The file in the participant's folder: one message a line."""


class Recording:
    """Notes messages as they are on the wire, before they are read and after they are written."""

    def __init__(self, folder: Path, name: str, now: Callable[[], float]) -> None:
        self._name = name
        self._now = now
        """Returns the simulated time."""
        descriptor = os.open(folder / TRAFFIC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")

    def channel(self, channel: aio.Channel, peer: str) -> aio.Channel:
        """Return a channel to `peer` of which every message is noted."""
        return cast("aio.Channel", _RecordedChannel(self, channel, peer))

    def note(self, sender: str, receiver: str, method: str, kind: str, payload: bytes) -> None:
        """Add a message: `kind` is request or response."""
        line = {
            "at": time.time(),
            "simulated": self._now(),
            "from": sender,
            "to": receiver,
            "method": method,
            "kind": kind,
            "bytes": payload.hex(),
        }
        self._file.write(json.dumps(line) + "\n")

    def sent(self, peer: str, method: str, write: Callable[[M], bytes]) -> Callable[[M], bytes]:
        """Return a serialiser that notes what it writes to `peer`."""

        def noting(message: M) -> bytes:
            payload = write(message)
            self.note(self._name, peer, method, "request", payload)
            return payload

        return noting

    def received(self, peer: str, method: str, read: Callable[[bytes], M]) -> Callable[[bytes], M]:
        """Return a parser that notes what it reads from `peer`."""

        def noting(payload: bytes) -> M:
            self.note(peer, self._name, method, "response", payload)
            return read(payload)

        return noting

    def close(self) -> None:
        """Write the rest."""
        self._file.close()


class _RecordedChannel:
    """What a generated stub asks a channel for, with serialisers that note what passes them."""

    def __init__(self, recording: Recording, channel: aio.Channel, peer: str) -> None:
        self._recording, self._channel, self._peer = recording, channel, peer

    def _wrap(self, kind: str, method: str, write: Any, read: Any, options: Any) -> Any:
        return getattr(self._channel, kind)(
            method,
            request_serializer=self._recording.sent(self._peer, method, write),
            response_deserializer=self._recording.received(self._peer, method, read),
            **options,
        )

    def unary_stream(
        self, method: str, request_serializer: Any, response_deserializer: Any, **options: Any
    ) -> Any:
        return self._wrap(
            "unary_stream", method, request_serializer, response_deserializer, options
        )

    def stream_stream(
        self, method: str, request_serializer: Any, response_deserializer: Any, **options: Any
    ) -> Any:
        return self._wrap(
            "stream_stream", method, request_serializer, response_deserializer, options
        )
