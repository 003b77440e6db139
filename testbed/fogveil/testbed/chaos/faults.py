"""Faults, and plans of them: drawn from a seed, or read from what a failed run has printed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from fogveil.core.errors import InputError
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.protocol.roster import Roster

KILL, TORN, STALL, CUT = "kill", "torn", "stall", "cut"
DROP, DOUBLE, DELAY, REORDER = "drop", "double", "delay", "reorder"
ON_MESSAGES = (DROP, DOUBLE, DELAY, REORDER)
DISCONNECT = "disconnect"
STREAMS = ("clock", "boundary", "mqtt")
"""The kinds of streams that are cut: with the clock, from the agent to a provider, and MQTT."""


@dataclass(frozen=True)
class Fault:
    """What happens to whom, and when.

    >>> Fault.parse({"at": 0.5, "kind": "kill", "who": "agent"})
    Fault(at=0.5, kind='kill', who='agent', delay=0.0, seconds=0.0, stream='', number=0)
    """

    at: float
    """How much of an undisturbed run is over, from 0 to 1."""
    kind: str
    """`kill`; `torn`: kill the clock, and tear the last record of its log; `stall`; `cut` a
    stream; `disconnect` from the network; `drop`, `double`, `delay` or `reorder` MQTT messages."""
    who: str
    delay: float = 0.0
    """Seconds to wait after that: where a fault shall meet a recovery."""
    seconds: float = 0.0
    """How long it lasts; of delayed messages, by how much."""
    stream: str = ""
    """Which stream of theirs is cut."""
    number: int = 0
    """How many of the messages that they publish next are meant."""

    def describe(self) -> str:
        """Return a short sentence."""
        parts = [f"{self.kind} {self.who} at {self.at:.1%}"]
        parts += [f"{self.delay:.3g} s later"] if self.delay else []
        parts += [f"for {self.seconds:.3g} s"] if self.seconds else []
        parts += [f"stream {self.stream}"] if self.stream else []
        parts += [f"{self.number} messages"] if self.number else []
        return ", ".join(parts)

    @classmethod
    def parse(cls, plain: Any) -> Self:
        """Read a fault; ValueError if it is none."""
        if not isinstance(plain, dict) or set(plain) - {field.name for field in fields(cls)}:
            raise ValueError("expected the keys at, kind, who, delay, seconds, stream, number")
        try:
            fault = TypeAdapter(cls).validate_python(plain)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
        numbers = fault.at, fault.delay, fault.seconds, fault.number
        if not all(map(isfinite, numbers)) or min(numbers) < 0 or fault.at > 1:
            raise ValueError("expected at from 0 to 1, and no negative or infinite number")
        return fault


@dataclass(frozen=True)
class FaultPlan:
    """The faults of one run; the seed also draws how long simulated messages take."""

    seed: int
    faults: tuple[Fault, ...]

    def text(self) -> str:
        """Return it as --plan takes it."""
        defaults = asdict(Fault(0.0, "", ""))
        faults = [
            {key: value for key, value in asdict(fault).items() if value != defaults.get(key)}
            | {"at": fault.at}
            for fault in self.faults
        ]
        return json.dumps({"seed": self.seed, "faults": faults}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str, kinds: tuple[str, ...], roster: Roster) -> Self:
        """Read a plan of some kinds of faults; InputError if it is none for these participants."""
        names = (CLOCK, BROKER, *roster.all)
        try:
            plain = json.loads(text)
            match plain:
                case {"seed": int(seed), "faults": list(listed), **others} if not others:
                    faults = tuple(map(Fault.parse, listed))
                case _:
                    raise ValueError('expected {"seed":N,"faults":[…]}')  # noqa: TRY301
            for fault in faults:
                _check(fault, kinds, names)
        except ValueError as error:
            raise InputError(f"--plan: is no plan of faults: {error}") from None
        return cls(seed, faults)


def _check(fault: Fault, kinds: tuple[str, ...], names: tuple[str, ...]) -> None:
    if fault.kind not in kinds:
        raise ValueError(f"'{fault.kind}' is none of the kinds {', '.join(kinds)}")
    if fault.who not in names:
        raise ValueError(f"'{fault.who}' is none of {', '.join(names)}")
    if fault.kind == TORN and fault.who != CLOCK:
        raise ValueError("only the clock has a log to tear")
    if fault.kind == CUT and fault.stream not in STREAMS:
        raise ValueError(f"'{fault.stream}' is none of the streams {', '.join(STREAMS)}")
    if fault.kind in ON_MESSAGES and fault.who in (CLOCK, BROKER):
        raise ValueError(f"{fault.who} publishes no messages")


def publishers(roster: Roster) -> tuple[str, ...]:
    """Return who publishes MQTT messages."""
    return (AGENT, *roster.fogs, roster.cloud, *roster.sources)
