"""Which Fog nodes take jobs, and which tell their counts, over simulated time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """From an instant on a Fog node takes jobs or not, and tells its count or not."""

    at: float
    node: int
    takes: bool
    tells: bool
    crash: bool = False
    """Whether its process ends at this instant, with all that it holds."""
    notice: float | None = None
    """After a crash that loses jobs: when, from `at` on, their clusters emit them again."""


class Membership:
    """The members of a run as time goes on.

    >>> membership = Membership(3, [MembershipChange(5.0, node=1, takes=False, tells=True)])
    >>> membership.available, membership.next_change
    (None, 5.0)
    >>> membership.advance(5.0)
    True
    >>> membership.available, membership.silent, membership.next_change
    ((0, 2), frozenset(), inf)
    """

    def __init__(self, nodes: int, changes: Sequence[MembershipChange]) -> None:
        """Begin an episode with all nodes; changes come in order of time."""
        self._changes = changes
        self._done = 0
        self._takes, self._tells = [True] * nodes, [True] * nodes
        self.next_change = changes[0].at if changes else inf
        """The instant of the next change; infinity after the last."""
        self.available: tuple[int, ...] | None = None
        """The nodes that take jobs; None: all."""
        self.silent: frozenset[int] = frozenset()
        """The nodes that tell no count."""

    def advance(self, now: float) -> bool:
        """Make the changes up to and including an instant; return whether there were any."""
        if now < self.next_change:
            return False
        for change in self._take(now):
            self._takes[change.node], self._tells[change.node] = change.takes, change.tells
        nodes = range(len(self._takes))
        available = tuple(node for node in nodes if self._takes[node])
        self.available = None if len(available) == len(nodes) else available
        self.silent = frozenset(node for node in nodes if not self._tells[node])
        return True

    @property
    def upcoming(self) -> Sequence[MembershipChange]:
        """The changes that were not made yet."""
        return self._changes[self._done :]

    @property
    def telling(self) -> tuple[int, ...]:
        """The nodes that tell their counts."""
        return tuple(node for node, tells in enumerate(self._tells) if tells)

    @property
    def taking(self) -> tuple[int, ...]:
        """The nodes that take jobs."""
        return tuple(node for node, takes in enumerate(self._takes) if takes)

    def _take(self, now: float) -> Iterable[MembershipChange]:
        begin = self._done
        while self._done < len(self._changes) and self._changes[self._done].at <= now:
            self._done += 1
        after = self._changes[self._done :]
        self.next_change = after[0].at if after else inf
        return self._changes[begin : self._done]

    def hide(self, counts: Sequence[int], hidden: int) -> tuple[int, ...]:
        """Return counts with a number in place of those that are not told."""
        silent = self.silent
        return tuple(hidden if node in silent else count for node, count in enumerate(counts))
