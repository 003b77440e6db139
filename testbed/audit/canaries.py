"""Seeking planted numbers in bytes, however they may be written."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

LARGEST_FLOAT = 2.0**127


def spellings(value: float) -> dict[str, bytes]:
    """Return the ways in which a number may stand in a message, a file or a text.

    >>> spellings(300.0)["varint"].hex()
    'ac02'
    """
    whole = int(value)
    found = {
        "text": repr(value).encode(),
        "double": struct.pack("<d", value),
        "double, big-endian": struct.pack(">d", value),
    }
    if value < LARGEST_FLOAT:
        found |= {
            "float": struct.pack("<f", value),
            "float, big-endian": struct.pack(">f", value),
        }
    if whole == value and whole > 0:
        size = 4 if whole < 2**32 else (8 if whole < 2**64 else 16)
        found |= {
            "digits": str(whole).encode(),
            "hexadecimal": f"{whole:x}".encode(),
            "varint": _varint(whole),
            "zigzag varint": _varint(2 * whole),
            "fixed": whole.to_bytes(size, "little"),
            "fixed, big-endian": whole.to_bytes(size, "big"),
        }
    return found


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:  # noqa: PLR2004 (seven bits a byte)
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def seek(canaries: Iterable[tuple[str, float]], seen: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """Yield a sentence for every canary that is found, in whatever spelling."""
    sought = [
        (name, how, spelled)
        for name, value in canaries
        for how, spelled in spellings(value).items()
    ]
    for where, content in seen:
        for name, how, spelled in sought:
            if spelled in content:
                yield f"{name} stands as {how} in {where}"
