"""A provider's part in a secure sum: keys over MQTT first, then shares in place of counts.

`membership` decides which keys are valid, `masking` hides the counts; here keys are waited for.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from fogveil.core.errors import InputError, LostError
from fogveil.protocol.message_order import PATIENCE, parse_message
from fogveil.provider_node.masking import Masks
from fogveil.provider_node.membership import (
    KeyRefusedError,
    Membership,
    SigningCredentials,
    TotalGroup,
)
from fogveil.provider_node.settings import ProviderSettings
from fogveil.v1.total_pb2 import KeyAnnouncement

log = logging.getLogger("provider_node")


class SecureSum:
    """One provider at level `total`."""

    def __init__(self, settings: ProviderSettings) -> None:
        if settings.credentials is None:
            raise InputError(
                f"{settings.name} discloses 'total', which needs an identity to sign its key with: "
                "leave --insecure out"
            )
        assert settings.total is not None
        self._name = settings.name
        group = TotalGroup(settings.run, settings.total.members, settings.total.cloud)
        self._membership = Membership(
            group, settings.name, SigningCredentials.read(settings.credentials)
        )
        self._refused: dict[str, KeyRefusedError] = {}
        self._complete = asyncio.Event()
        self._masks: Masks | None = None
        self._episode = self._observed = 0

    def announcement(self) -> bytes:
        """Return the announcement of our key, to be published retained."""
        return self._membership.announcement().SerializeToString()

    def receive(self, member: str, payload: bytes) -> None:
        """Handle a member's announcement; an invalid one is logged and dropped.

        The valid one may still arrive: whoever disturbs the relay must not be able to end the run.
        """
        if member == self._name:
            return  # our own, echoed by the broker
        announcement = parse_message(KeyAnnouncement, payload, member)
        if announcement is None:
            return
        try:
            self._membership.admit(member, announcement, datetime.now(UTC))
        except KeyRefusedError as error:
            log.warning("%s", error)
            self._refused[member] = error
        if not self._membership.missing:
            self._complete.set()

    async def begin(self, episode: int, patience: float = PATIENCE) -> None:
        """Begin an episode; before the first one, wait for the keys of all members."""
        if not self._masks:
            await self._wait_for_keys(patience)
        self._episode, self._observed = episode, 0

    async def _wait_for_keys(self, patience: float) -> None:
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
        """Return the shares of the next observations' counts."""
        assert self._masks is not None
        first = self._observed
        self._observed += len(counts)
        return [
            self._masks.share(self._episode, index, count)
            for index, count in enumerate(counts, first)
        ]
