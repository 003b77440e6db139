"""Comparing the canonical forms of three runs: two with the same secrets, and their twin."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import median
from typing import NamedTuple

from fogveil.testbed.privacy.audit.twins.form import Channel, Form
from fogveil.testbed.privacy.audit.twins.host_form import PROCESSES

SHOWN = 120
"""Characters of an item that a fault quotes."""
_TEXTS = "|".join(text.encode().hex() for text in ("Cancelling all calls", "Server shutdown"))
USUAL_ENDINGS = re.compile(
    r"stream \d+ END_STREAM|DISCONNECT|RstStreamFrame \d+ 0000000[08]"
    rf"|GoAwayFrame 0 (7fffffff|0000000[0-9a-f])0000000[02]({_TEXTS})?"
    r"|stream \d+ headers flags 5 \[\('grpc-status', '(0|1|14)'\)"
    r"(, \('grpc-message', '(Cancelling all calls)?'\))?\] \['literal 0 plain plain'"
    r"(, 'literal 0 plain plain')?\] 0 0 False 0"
)
"""How gRPC and MQTT end streams, whichever side is first."""
PRIOR = 16.0
"""Added to numbers of artefacts before they are compared: small ones vary most."""
LEAST_RATIO, NOISE_FACTOR = 1.5, 2.0
"""A number is conspicuous if it deviates by more than this ratio, times that of the two runs with
the same secrets that differ most to this power."""


class Triple(NamedTuple):
    """The canonical forms of runs."""

    one: Form
    again: Form
    """With the same secrets."""
    twin: Form


@dataclass
class Comparison:
    """What comparing runs gave, by receiver."""

    compared: Counter[str] = field(default_factory=Counter)
    """Items that are equal in all runs."""
    channels: Counter[str] = field(default_factory=Counter)
    faults: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, other: Comparison, prefix: str) -> None:
        """Add another comparison, whose faults get a prefix."""
        self.compared += other.compared
        self.channels += other.channels
        for receiver, faults in other.faults.items():
            self.faults[receiver] += [f"{prefix}: {fault}" for fault in faults]


def compare_content(runs: Triple) -> Comparison:
    """Compare the content of every channel."""
    result = Comparison()
    for channel in sorted({channel for form in runs for channel in form.content}):
        one, again, twin = (form.content.get(channel, []) for form in runs)
        if channel.name == PROCESSES and not (one and again and twin):
            continue  # a process that ended before it was looked at
        result.channels[channel.receiver] += 1
        if one != again:
            difference = first_difference(one, again)
            fault = f"{channel} differs between runs with the same secrets: {difference}"
            result.faults[channel.receiver].append(fault)
        elif one != twin:
            difference = first_difference(one, twin)
            result.faults[channel.receiver].append(f"{channel} depends on secrets: {difference}")
        else:
            result.compared[channel.receiver] += len(one)
    return result


def first_difference(one: Sequence[str], other: Sequence[str]) -> str:
    """Describe the first difference between two lists of items.

    >>> first_difference(["a", "b"], ["a", "c", "d"])
    "item 2 is 'b' in one and 'c' in the other"
    >>> first_difference(["a"], ["a", "c"])
    "item 2 is missing in one and 'c' in the other"
    """
    pairs = enumerate(zip(one, other, strict=False), 1)
    number = next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)) + 1)
    a, b = (_quote(items[number - 1 : number]) for items in (one, other))
    return f"item {number} is {a} in one and {b} in the other"


def _quote(items: Sequence[str]) -> str:
    if not items:
        return "missing"
    text = items[0]
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


class Alarm(NamedTuple):
    """Something conspicuous that chance can cause, and that has to happen again to count."""

    channel: Channel
    what: str
    sign: int
    evidence: str

    @property
    def key(self) -> tuple[Channel, str, int]:
        """What has to be the same in a repetition."""
        return self.channel, self.what, self.sign


def conspicuous(runs: Triple, fogs: Collection[str]) -> list[Alarm]:
    """Return what is conspicuous about the twin's artefacts of scheduling and its endings."""
    return [*_unusual_endings(runs), *_deviating_artefacts(runs, fogs)]


def _unusual_endings(runs: Triple) -> Iterator[Alarm]:
    known: defaultdict[str, set[str]] = defaultdict(set)
    for form in (runs.one, runs.again):
        for channel, endings in form.endings.items():
            known[channel.name] |= endings  # of any provider: which one is a matter of races
    for channel, endings in runs.twin.endings.items():
        for ending in sorted(endings - known[channel.name]):
            if not USUAL_ENDINGS.fullmatch(ending):
                yield Alarm(channel, ending, 1, f"{channel} ends with {_quote([ending])}")


def _deviating_artefacts(runs: Triple, fogs: Collection[str]) -> Iterator[Alarm]:
    """Compare the number of artefacts of each provider with those of the others in the same run.

    What burdens the machine burdens all providers of a run alike.
    """
    families: defaultdict[tuple[str, str, str], list[Channel]] = defaultdict(list)
    for channel in {channel for form in runs for channel in form.artefacts}:
        if channel.sender in fogs:
            families["from", channel.receiver, channel.name].append(channel)
        elif channel.receiver in fogs:
            families["to", channel.sender, channel.name].append(channel)
    for channels in families.values():
        channels.sort()
        for kind in sorted({kind for form in runs for c in channels for kind in form.artefacts[c]}):
            one, again, twin = (_relative(form, channels, kind) for form in runs)
            noise = max(abs(a - b) for a, b in zip(one, again, strict=True))
            for place, channel in enumerate(channels):
                deviation = twin[place] - (one[place] + again[place]) / 2
                if abs(deviation) > log(LEAST_RATIO) + NOISE_FACTOR * noise:
                    numbers = [form.artefacts[channel][kind] for form in runs]
                    evidence = (
                        f"{channel} has {numbers[2]} x {kind}, with the other secrets {numbers[0]} "
                        f"and {numbers[1]}: relative to the other providers {exp(deviation):.2g} "
                        f"times as many; runs with the same secrets differ by {exp(noise):.2g}"
                    )
                    yield Alarm(channel, kind, 1 if deviation > 0 else -1, evidence)


def _relative(form: Form, channels: Sequence[Channel], kind: str) -> list[float]:
    """Return the logarithm of each number's ratio to the middle one."""
    numbers = [log(form.artefacts[channel][kind] + PRIOR) for channel in channels]
    middle = median(numbers)
    return [number - middle for number in numbers]


def repeated(alarms: Sequence[Alarm], later: Sequence[Alarm]) -> list[Alarm]:
    """Return the alarms that were raised again, in the same direction."""
    again = {alarm.key for alarm in later}
    return [alarm for alarm in alarms if alarm.key in again]
