"""The canonical form of a gRPC connection.

Settings, headers, messages, flags and padding are content. How often the ends ping each other or
widen their windows, and how the bytes of a message are cut into frames, is scheduling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import hpack
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from fogveil.testbed.privacy.audit.twins.form import Channel, Form
from fogveil.testbed.privacy.inspect.http2 import (
    FRAME_HEADER,
    LARGEST_TABLE,
    MESSAGE_PREFIX,
    PREFACE,
)

ACK = 1
"""The only flag of SETTINGS and PING."""

MessageForm = Callable[[str, bool, bytes], str]
"""Returns the canonical form of a message of a method, a request or a response."""


@dataclass
class _Stream:
    path: str = ""
    answered: bool = False
    """Whether it had headers, so that the next ones are trailers."""
    data: bytearray = field(default_factory=bytearray)


def add_connection(
    form: Form,
    up: Channel,
    down: Channel,
    sent: bytes,
    returned: bytes,
    message_form: MessageForm,
) -> None:
    """Add what went up and down a connection to a form."""
    paths: dict[int, str] = {}
    requests = _Reader(form, up, paths, message_form, request=True)
    responses = _Reader(form, down, paths, message_form, request=False)
    if sent and not sent.startswith(PREFACE):
        form.content[up].append(f"no HTTP/2: {sent.hex()}")
        return
    requests.read_all(sent[len(PREFACE) :])
    responses.read_all(returned)
    for one, other, channel in ((requests, responses, up), (responses, requests, down)):
        # What a ping asks is random. What answers it is not.
        for answer in (one.pongs - other.pings).elements():
            form.content[channel].append(f"PING ack without a ping: {answer.hex()}")


class _Reader:
    """Reads the frames of one direction."""

    def __init__(
        self,
        form: Form,
        channel: Channel,
        paths: dict[int, str],
        message_form: MessageForm,
        *,
        request: bool,
    ) -> None:
        self._form, self._channel, self._paths = form, channel, paths
        self._message_form, self._request = message_form, request
        self._decoder = hpack.Decoder()
        self._decoder.max_allowed_table_size = LARGEST_TABLE
        self._block = b""
        self._streams: dict[int, _Stream] = {}
        self.pings: Counter[bytes] = Counter()
        self.pongs: Counter[bytes] = Counter()

    def read_all(self, content: bytes) -> None:
        """Read all frames; what is incomplete or invalid is content, too."""
        try:
            rest = self._read(content)
        except (HyperframeError, hpack.HPACKError, IndexError) as error:
            self._item(f"invalid HTTP/2: {error}")
            return
        if rest:
            self._item(f"incomplete frame: {rest.hex()}")
        for number, stream in sorted(self._streams.items()):
            if stream.data:
                self._item(f"stream {number} incomplete message {stream.data.hex()}")

    def _read(self, content: bytes) -> bytes:
        """Read all complete frames, and return the rest."""
        view, at = memoryview(content), 0
        while at + FRAME_HEADER <= len(view):
            begin = at + FRAME_HEADER
            frame, size = Frame.parse_frame_header(view[at:begin])
            if begin + size > len(view):
                break
            frame.parse_body(view[begin : begin + size])
            reserved = view[at + 5] & 0x80  # the bit before the stream's number
            self._add(frame, bytes(view[begin : begin + size]), frame_flags=view[at + 4])
            if reserved:
                self._item("reserved bit")
            at = begin + size
        return bytes(view[at:])

    def _item(self, text: str) -> None:
        self._form.content[self._channel].append(self._form.blank(text))

    def _artefact(self, kind: str) -> None:
        self._form.artefacts[self._channel][kind] += 1

    def _add(self, frame: Frame, body: bytes, frame_flags: int) -> None:
        match frame:
            case DataFrame():
                self._add_data(frame, frame_flags)
            case HeadersFrame() | ContinuationFrame():
                self._add_headers(frame, frame_flags)
            case SettingsFrame() if frame_flags == ACK:
                self._artefact("SETTINGS ack")
            case SettingsFrame() if not frame_flags:
                self._item(f"SETTINGS {body.hex()}")
            case PingFrame() if frame_flags in (0, ACK):
                self._artefact("PING ack" if frame_flags else "PING")
                (self.pongs if frame_flags else self.pings)[body] += 1
            case WindowUpdateFrame() if not frame_flags:
                self._artefact(f"WINDOW_UPDATE of stream {frame.stream_id}")
            case RstStreamFrame() | GoAwayFrame() if not frame_flags:
                self._ending(f"{type(frame).__name__} {frame.stream_id} {body.hex()}")
            case _:
                number = f"{frame.type} stream {frame.stream_id} flags {frame_flags}"
                self._item(f"frame type {number} {body.hex()}")

    def _ending(self, text: str) -> None:
        self._form.endings[self._channel].add(self._form.blank(text))

    def _add_data(self, frame: DataFrame, frame_flags: int) -> None:
        stream = self._streams.setdefault(frame.stream_id, _Stream())
        if frame.flags and "PADDED" in frame.flags:
            self._item(f"stream {frame.stream_id} DATA with padding of {frame.pad_length}")
        if frame_flags & ~0x9:
            self._item(f"stream {frame.stream_id} DATA with flags {frame_flags}")
        stream.data += frame.data
        self._artefact("DATA")
        path = self._paths.get(frame.stream_id, "")
        for flag, payload in _messages(stream.data):
            text = self._message_form(path, self._request, payload)
            prefix = f"stream {frame.stream_id} message"
            self._item(f"{prefix} {text}" if not flag else f"{prefix} flag {flag} {payload.hex()}")
        if "END_STREAM" in frame.flags:
            self._ending(f"stream {frame.stream_id} END_STREAM")

    def _add_headers(self, frame: HeadersFrame | ContinuationFrame, frame_flags: int) -> None:
        number = frame.stream_id
        self._block = frame.data if isinstance(frame, HeadersFrame) else self._block + frame.data
        if "END_HEADERS" not in frame.flags:
            self._item(f"stream {number} headers in several frames")
            return
        shape = list(representations(self._block))
        headers = [
            (_text(name), _text(value))
            for name, value in self._decoder.decode(self._block, raw=True)
        ]
        stream = self._streams.setdefault(number, _Stream())
        if self._request and not stream.answered:
            self._paths[number] = dict(headers).get(":path", "")
        text = f"stream {number} headers flags {frame_flags} {headers} {shape}"
        if isinstance(frame, HeadersFrame):
            text += f" {frame.depends_on} {frame.stream_weight} {frame.exclusive} "
            text += f"{frame.pad_length}"
        if stream.answered or any(name == "grpc-status" for name, _ in headers):
            self._ending(text)
        else:
            self._item(text)
        stream.answered = True


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else bytes(raw).decode(errors="backslashreplace")


def _messages(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield the flag and the content of each complete message, and remove it from the data."""
    while len(data) >= MESSAGE_PREFIX.size:
        flag, size = MESSAGE_PREFIX.unpack_from(data)
        end = MESSAGE_PREFIX.size + size
        if end > len(data):
            return
        payload = bytes(data[MESSAGE_PREFIX.size : end])
        del data[:end]
        yield flag, payload


LITERALS = (0x40, 0x3F, "indexed literal"), (0x10, 0x0F, "secret literal"), (0, 0x0F, "literal")
"""Their pattern, the mask of their index, and a name."""


def representations(block: bytes) -> Iterator[str]:
    """Yield how each header is encoded (RFC 7541, 6): the sender has the choice.

    >>> list(representations(bytes.fromhex("82040261620081610162")))
    ['indexed 2', 'literal 4 plain', 'literal 0 huffman plain']
    """
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            index, at = _integer(block, at, 0x7F)
            yield f"indexed {index}"
        elif first & 0xE0 == 0x20:  # noqa: PLR2004
            size, at = _integer(block, at, 0x1F)
            yield f"table of {size}"
        else:
            _, mask, name = next(kind for kind in LITERALS if first & ~kind[1] == kind[0])
            index, at = _integer(block, at, mask)
            text = f"{name} {index}"
            for _ in range(1 if index else 2):
                text += " huffman" if block[at] & 0x80 else " plain"
                size, at = _integer(block, at, 0x7F)
                at += size
            yield text


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return an integer whose first bits stand under a mask, and where it ends."""
    number = block[at] & mask
    at += 1
    if number == mask:
        shift = 0
        while True:
            number += (block[at] & 0x7F) << shift
            shift += 7
            at += 1
            if not block[at - 1] & 0x80:
                break
    return number, at
