"""A provider's part in a total: keys over MQTT before the first episode, shares instead of counts.

What may be admitted and how counts are hidden is decided elsewhere; here it is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from fogveil.errors import InputError, LostError
from fogveil.ordering import PATIENCE, decode
from fogveil.settings import Settings
from fogveil.v1.total_pb2 import KeyAnnouncement
from provider_node.masking import Masks
from provider_node.membership import Group, Membership, Papers, RefusedError

log = logging.getLogger("provider_node")


class Totals:
    """One provider at level `total`."""

    def __init__(self, settings: Settings) -> None:
        if settings.credentials is None:
            raise InputError(
                f"{settings.name} discloses 'total', whose keys are signed, and has no identity"
            )
        given = settings.own["total"]
        self._name = settings.name
        group = Group(settings.run, tuple(given["members"]), given["cloud"])
        self._membership = Membership(group, settings.name, Papers.read(settings.credentials))
        self._refused: dict[str, RefusedError] = {}
        self._complete = asyncio.Event()
        self._masks: Masks | None = None
        self._episode = self._observed = 0

    def announcement(self) -> bytes:
        """Return what to publish, retained, for all other members."""
        return self._membership.announcement().SerializeToString()

    def receive(self, member: str, payload: bytes) -> None:
        """Take what came as a member's announcement; a false one is dropped with a word.

        The true one may still come: who can disturb a relay shall not end a run by it.
        """
        if member == self._name:
            return  # our own, as the broker gives it back
        told = decode(KeyAnnouncement, payload, member)
        if told is None:
            return
        try:
            self._membership.admit(member, told, datetime.now(UTC))
        except RefusedError as error:
            log.warning("%s", error)
            self._refused[member] = error
        if not self._membership.missing:
            self._complete.set()

    async def begin(self, episode: int, patience: float = PATIENCE) -> None:
        """Begin an episode, the first one when all members have announced their keys."""
        if not self._masks:
            await self._agree(patience)
        self._episode, self._observed = episode, 0

    async def _agree(self, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._complete.wait()
        except TimeoutError:
            missing = self._membership.missing
            for member in missing:
                if member in self._refused:
                    raise self._refused[member] from None
            sentence = f"waited {patience:g} s for the key of {', '.join(missing)}"
            raise LostError(missing[0], sentence) from None
        self._masks = self._membership.masks()

    def shares(self, counts: list[int]) -> list[int]:
        """Hide the counts of the next observations."""
        assert self._masks is not None
        first = self._observed
        self._observed += len(counts)
        return [
            self._masks.share(self._episode, index, count)
            for index, count in enumerate(counts, first)
        ]
