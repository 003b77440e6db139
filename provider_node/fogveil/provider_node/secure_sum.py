"""A provider's part in a secure sum: keys over MQTT first, then shares in place of counts.

`membership` decides which keys are valid, `masking` hides the counts; here keys are waited for,
anew in each epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from fogveil.core.errors import InfrastructureError, InputError, LostError, MisbehaviourError
from fogveil.protocol.identity import CLOCK
from fogveil.protocol.message_order import PATIENCE, RECOVERY_PATIENCE, parse_message
from fogveil.provider_node.key_store import KeyStore
from fogveil.provider_node.masking import Masks
from fogveil.provider_node.membership import (
    KeyRefusedError,
    Membership,
    SigningCredentials,
    TotalGroup,
    check_origin,
)
from fogveil.provider_node.settings import ProviderSettings
from fogveil.v1.total_pb2 import KeyAnnouncement

log = logging.getLogger("provider_node")

NO_EPOCH = -1


class SecureSum:
    """One provider at level `total`.

    Only the present epoch's keys are at hand: nobody can be asked for a share of an earlier one. A
    member that may be lost has those of all epochs in its store, for it will go through them again.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        if settings.credentials is None:
            raise InputError(
                f"{settings.name} discloses 'total', which needs an identity to sign its key with: "
                "leave --insecure out"
            )
        assert settings.total is not None
        self._name = settings.name
        self._everybody = TotalGroup(settings.run, settings.total.members, settings.total.cloud)
        self._credentials = SigningCredentials.read(settings.credentials)
        self.epoch = NO_EPOCH
        """The present epoch, whether we are a member of it or not."""
        self._membership: Membership | None = None
        self._masks: Masks | None = None
        self._complete = asyncio.Event()
        self._early: dict[str, KeyAnnouncement] = {}
        """The last announcement of each member that is ahead of us, or that was when we started."""
        self._refused: dict[str, KeyRefusedError] = {}
        self._episode = self._observed = 0
        self._store = KeyStore(settings.folder) if settings.recovers else None

    # --- epochs ----------------------------------------------------------------------------------

    def open(self, epoch: int, telling: Iterable[int] | None = None) -> bool:
        """Begin an epoch; return whether we are a member, and have to announce a key.

        Members are the Cloud and the Fog providers with these numbers; None means all.
        """
        self.sit_out(epoch)
        group = self._everybody
        if telling is not None:
            present = {group.members[number] for number in telling} | {group.cloud}
            members = tuple(name for name in group.members if name in present)
            if self._name not in members:
                return False
            group = TotalGroup(group.run, members, group.cloud, epoch)
        else:
            group = TotalGroup(group.run, group.members, group.cloud, epoch)
        own = self._store.own(epoch) if self._store else None
        self._membership = Membership(group, self._name, self._credentials, own)
        if self._store:
            self._membership.restore(self._store.keys(epoch))
            if own is None:
                self._store.keep(epoch, self._membership.keys[0])
        early, self._early = self._early, {}
        for member, announcement in early.items():
            if announcement.epoch >= epoch:
                self._take(member, announcement)
        return True

    def sit_out(self, epoch: int) -> None:
        """Begin an epoch of which we are no member."""
        if epoch <= self.epoch:
            raise MisbehaviourError(
                CLOCK, f"the clock opened epoch {epoch} of the total after epoch {self.epoch}"
            )
        self.epoch, self._membership, self._masks = epoch, None, None
        self._complete, self._observed = asyncio.Event(), 0
        self._refused.clear()

    def announcement(self) -> bytes:
        """Return the announcement of our key in this epoch, to be published retained."""
        assert self._membership is not None
        return self._membership.announcement().SerializeToString()

    def receive(self, member: str, payload: bytes) -> None:
        """Handle a member's announcement; an invalid one is logged and dropped.

        The valid one may still arrive: whoever disturbs the relay must not be able to end the run.
        """
        if member == self._name:
            return  # our own, echoed by the broker, or that of our process before it crashed
        announcement = parse_message(KeyAnnouncement, payload, member)
        if announcement is not None:
            self._take(member, announcement)

    def _take(self, member: str, announcement: KeyAnnouncement) -> None:
        try:
            if announcement.epoch > self.epoch:
                self._keep(member, announcement)
            elif self._membership:
                self._membership.admit(member, announcement, datetime.now(UTC))
        except KeyRefusedError as error:
            log.warning("%s", error)
            self._refused[member] = error
        if self._membership and not self._membership.missing:
            self._complete.set()

    def _keep(self, member: str, announcement: KeyAnnouncement) -> None:
        """Keep a member's announcement for the epoch that it is for, if it is the member's own.

        A member that waits for our key is no further ahead than one epoch of which we are a member.
        """
        authority = self._credentials.authority
        check_origin(self._everybody, authority, member, announcement, datetime.now(UTC))
        kept = self._early.get(member)
        if kept is None or kept.epoch < announcement.epoch:
            self._early[member] = announcement

    async def agree(self, patience: float | None = None) -> None:
        """Wait for the keys of all members of this epoch."""
        assert self._membership is not None
        if patience is None:
            patience = RECOVERY_PATIENCE if self._store else PATIENCE
        if not self._membership.missing:  # we had them before we were lost
            self._complete.set()
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
        if self._store:
            self._store.keep(self.epoch, *self._membership.keys)

    def forget(self) -> None:
        """Remove the keys that were kept: the run is over."""
        if self._store:
            self._store.remove()

    # --- observations ----------------------------------------------------------------------------

    def begin(self, episode: int) -> None:
        """Begin an episode."""
        self._episode, self._observed = episode, 0

    def shares(self, counts: list[int]) -> list[int]:
        """Return the shares of the next observations' counts; in each epoch they begin with 0."""
        if self._masks is None:
            raise InfrastructureError(
                f"{self._name} was asked for its share of a total to which it does not add "
                f"(epoch {self.epoch})"
            )
        first = self._observed
        self._observed += len(counts)
        return [
            self._masks.share(self._episode, index, count)
            for index, count in enumerate(counts, first)
        ]
