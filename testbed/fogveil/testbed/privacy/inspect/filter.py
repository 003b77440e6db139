"""Selecting crossings by sender, receiver, method and kind, and refusing unknown names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fogveil.core.errors import InputError
from fogveil.protocol.identity import AGENT, AUDITOR, BROKER, CLOCK, SOURCES
from fogveil.protocol.recording import (
    DELIVERY,
    INITIAL,
    METADATA,
    REQUEST,
    RESPONSE,
    STATUS,
    TRAILING,
)
from fogveil.testbed.privacy.inspect.crossing import Crossing

KINDS = (REQUEST, RESPONSE, METADATA, INITIAL, TRAILING, STATUS, DELIVERY)


@dataclass(frozen=True)
class Filter:
    """Which crossings to show."""

    sender: str | None = None
    receiver: str | None = None
    between: frozenset[str] = frozenset()
    """Two names: from the one to the other, or back."""
    method: str | None = None
    kinds: frozenset[str] = frozenset()

    @classmethod
    def parse(
        cls,
        sender: str | None,
        receiver: str | None,
        between: str | None,
        method: str | None,
        kind: str | None,
    ) -> Filter:
        """Parse the options of the command line."""
        pair = frozenset(name.strip() for name in between.split(",")) if between else frozenset()
        if between and len(pair) != 2:  # noqa: PLR2004 (a pair)
            raise InputError(f"--between {between}: expected two names, as in agent,fog-3")
        kinds = [name.strip().replace("-", " ") for name in kind.split(",")] if kind else []
        for name in kinds:
            if name not in KINDS:
                known = ", ".join(each.replace(" ", "-") for each in KINDS)
                raise InputError(f"--kind {name}: expected some of {known}")
        return cls(sender, receiver, pair, method, frozenset(kinds))

    def accepts(self, crossing: Crossing) -> bool:
        """Tell whether to show a crossing."""
        senders = {crossing.sender, crossing.origin}
        return (
            (self.sender is None or self.sender in senders)
            and (self.receiver is None or self.receiver == crossing.receiver)
            and (not self.between or self.between == {crossing.origin, crossing.receiver})
            and (self.method is None or self.method in method_aliases(crossing))
            and (not self.kinds or crossing.kind in self.kinds)
        )

    @property
    def names(self) -> Iterator[tuple[str, str]]:
        """The participants that were named, each with its option."""
        if self.sender:
            yield "--from", self.sender
        if self.receiver:
            yield "--to", self.receiver
        for name in sorted(self.between):
            yield "--between", name


def method_aliases(crossing: Crossing) -> tuple[str, ...]:
    """Return the ways to name a method, as Watch or QueueService.Watch."""
    name = crossing.method_name
    separator = "/" if crossing.kind == DELIVERY else "."
    head, _, tail = name.partition(separator)
    return name, head, tail, crossing.method, crossing.method.strip("/")


class SeenNames:
    """The names in a recording, to tell a wrong name from one that sent nothing."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.methods: set[str] = set()
        """With all aliases."""
        self.grpc_methods: set[str] = set()
        """As Service.Method."""
        self.first_at: float | None = None
        """When the first crossing was recorded."""

    def add(self, crossing: Crossing) -> None:
        """Add the names in a crossing."""
        if self.first_at is None:
            self.first_at = crossing.at
        self.names.update((crossing.sender, crossing.receiver, crossing.origin))
        if crossing.kind != DELIVERY:
            self.grpc_methods.add(crossing.method_name)
        self.methods.update(method_aliases(crossing))

    def check_filter(self, chosen: Filter) -> None:
        """Refuse a filter with a name or method that is not in the recording."""
        for option, name in chosen.names:
            if name not in self.names:
                known = ", ".join(sorted(self.names)) or "no participant"
                raise InputError(f"{option} {name}: not in this recording, which has {known}")
        if chosen.method is not None and chosen.method not in self.methods:
            known = ", ".join(sorted(self.grpc_methods))
            raise InputError(f"--method {chosen.method}: not in this recording, which has {known}")

    @property
    def providers(self) -> list[str]:
        """The providers, the Cloud included."""
        return sorted(name for name in self.names if _may_be_provider(name))

    def check_about(self, name: str, *, learned: bool) -> None:
        """Refuse --about for a name that is no provider's and from which nothing was learned.

        The agent also learns from others than providers, as from the clock.
        """
        if name in self.providers or learned:
            return
        who = "not a provider" if name in self.names else "not in this recording"
        known = ", ".join(self.providers) or "none"
        raise InputError(f"--about {name}: {who}; the providers are {known}")


def _may_be_provider(name: str) -> bool:
    """Tell whether a name is neither another role's nor a stranger's network address."""
    others = AGENT, CLOCK, BROKER, AUDITOR, SOURCES
    return name not in others and not name.startswith(f"{SOURCES}-") and ":" not in name
