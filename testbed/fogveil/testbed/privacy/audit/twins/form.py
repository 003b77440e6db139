"""The canonical form of a run: what each one got from each other, without what chance decides.

Content has to be the same in runs that differ only in secrets. Everything else that the wire shows
is an artefact of scheduling, such as pings: it is counted, and the numbers are compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple


class Channel(NamedTuple):
    """A way from one participant to another."""

    sender: str
    receiver: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} from {self.sender} to {self.receiver}"


@dataclass
class Form:
    """What crossed in one run, by channel."""

    run: str = ""
    hosts: dict[str, str] = field(default_factory=dict)
    """The host names of identities, which depend on the run's name, with names for them."""
    content: defaultdict[Channel, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Items in their order, each as a text."""
    endings: defaultdict[Channel, set[str]] = field(default_factory=lambda: defaultdict(set))
    """How streams ended, which depends on the side that leaves first."""
    artefacts: defaultdict[Channel, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    """The number of artefacts of scheduling, by kind."""

    def blank(self, text: str) -> str:
        """Replace what every run draws anew: its name, and what is derived from it."""
        text = text.replace(self.run, "RUN")
        for host in self.hosts if ".fogveil" in text else ():
            text = text.replace(host, self.hosts[host])
        return text

    def blank_bytes(self, content: bytes) -> bytes:
        """Replace the run's name by as many other bytes."""
        return content.replace(self.run.encode(), b"R" * len(self.run))
