"""The messages that crossed the boundary around an instant, found in recordings of any length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from fogveil.core.files import open_untrusted
from fogveil.protocol.identity import AGENT
from fogveil.protocol.recording import DELIVERY, TRAFFIC
from fogveil.testbed.privacy.inspect.crossing import Crossing

BOUNDARY = (
    "/fogveil.v1.QueueService/",
    "/fogveil.v1.TotalService/",
    "/fogveil.v1.ResourcesService/",
)
"""The services that cross from a provider to the agent, and the agent's requests to them."""
MOST_READ, LEAST_READ = 2**16, 2**12
"""Bytes before the instant that are read of all recordings together, and of each at least."""


def messages_before(
    folder: Path, providers: Sequence[str], now: float, most: int
) -> list[dict[str, Any]]:
    """Return the last messages that crossed up to a simulated time, decoded, in order.

    They are those between the agent and the providers, each as its sender recorded it, and the
    placements that providers were sent, as they received them.
    """
    back = max(LEAST_READ, MOST_READ // (len(providers) + 1))
    found = [
        crossing
        for name in (AGENT, *providers)
        for crossing in _before(folder / name / TRAFFIC, now, back)
        if (crossing.sender == name and crossing.method.startswith(BOUNDARY))
        or (name != AGENT and _is_placement(crossing))
    ]
    found = [crossing for crossing in found if crossing.is_message]
    found.sort(key=lambda crossing: (crossing.simulated, crossing.at))
    return [_shown(crossing) for crossing in found[-most:]]


def _is_placement(crossing: Crossing) -> bool:
    return crossing.kind == DELIVERY and crossing.method_name.startswith("placement")


def _shown(crossing: Crossing) -> dict[str, Any]:
    return {
        "simulated": crossing.simulated,
        "from": crossing.origin,
        "to": crossing.receiver,
        "method": crossing.method_name,
        "fields": crossing.fields,
        "bytes": len(crossing.payload),
        "wire": crossing.payload.hex(" "),
    }


def _before(path: Path, now: float, back: int) -> Iterator[Crossing]:
    """Yield the crossings of about so many last bytes up to a simulated time."""
    try:
        with open_untrusted(path) as file:
            file.seek(0, 2)
            low, high = 0, file.tell()
            # Lines are in the order of simulated time: find the end of those up to now.
            while high - low > back // 4:
                middle = (low + high) // 2
                crossing = _next_crossing(file, middle)
                if crossing is None or crossing.simulated > now:
                    high = middle
                else:
                    low = middle
            begin = max(0, low - back)
            file.seek(begin)
            if begin:
                file.readline()
            while file.tell() < high + back // 4 and (line := file.readline()).endswith(b"\n"):
                crossing = Crossing.parse(line)
                if crossing.simulated > now:
                    return
                yield crossing
    except (OSError, ValueError, KeyError, TypeError):
        return  # there is no recording, or its owner has replaced it by something else


def _next_crossing(file: IO[bytes], offset: int) -> Crossing | None:
    """Return the first whole crossing after an offset."""
    file.seek(offset)
    file.readline()
    line = file.readline()
    return Crossing.parse(line) if line.endswith(b"\n") else None
