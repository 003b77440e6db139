"""Membership of a total: every member announces its key, and the list of members, signed.

Whenever other providers add up to the total than before, a new epoch begins: a membership of its
own, for which every member makes a new key.

Keys are relayed by a broker that need not be trusted: a key is a member's if that member's
certificate, issued by the run's authority, verifies its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fogveil.core.disclosure import Level
from fogveil.core.errors import InputError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import CLOUD, PROVIDER, Identity
from fogveil.provider_node.masking import Masks, encode_fields, shared_secret
from fogveil.v1.total_pb2 import KeyAnnouncement

FEWEST_MEMBERS = 3
"""With two, each would learn the other's count from the total."""
LABEL = "fogveil key announcement 1"
SIGNED_WITH = ec.ECDSA(hashes.SHA256())


class KeyRefusedError(InputError):
    """A member's announcement is invalid."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(f"the key of {member} was refused: {why}")
        self.member = member


@dataclass(frozen=True)
class TotalGroup:
    """The members of a total, as the launcher told each of them."""

    run: str
    members: tuple[str, ...]
    """In the order that all shared_secret on."""
    cloud: str
    epoch: int = 0
    """Which membership of the run this is: nobody leaves or joins within one, and none recurs."""

    def __post_init__(self) -> None:
        if self.cloud not in self.members:
            raise InputError(
                f"a total needs the Cloud among its members, and {self.cloud} is none of "
                f"{', '.join(self.members)}"
            )
        if len(self.members) < FEWEST_MEMBERS:
            raise InputError(
                f"a total needs at least {FEWEST_MEMBERS} members, with the Cloud: with "
                f"{', '.join(self.members)} each would learn what the other one hides"
            )
        if len(set(self.members)) < len(self.members):
            raise InputError(f"a total has each member once: {', '.join(self.members)}")

    def identity(self, member: str) -> Identity:
        """Return the identity that a member's certificate must have."""
        return Identity(self.run, CLOUD if member == self.cloud else PROVIDER, member)


@dataclass(frozen=True)
class SigningCredentials:
    """The key and certificate that a member signs with, and the authority of all certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: bytes
    """DER."""
    authority: x509.Certificate

    @classmethod
    def read(cls, credentials: Credentials) -> Self:
        """Read them from a participant's identity folder."""
        try:
            key = serialization.load_pem_private_key(credentials.key.read_bytes(), None)
            own = x509.load_pem_x509_certificate(credentials.certificate.read_bytes())
            authority = x509.load_pem_x509_certificate(credentials.authority.read_bytes())
        except OSError as error:
            raise InputError(
                f"{error.filename}: the identity cannot be read: {error.strerror}"
            ) from error
        except ValueError as error:
            raise InputError(f"{credentials.folder}: is not an identity: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InputError(f"{credentials.key}: expected a key on an elliptic curve")
        return cls(key, own.public_bytes(serialization.Encoding.DER), authority)


class Membership:
    """One member's view: it announces its own key and admits the keys of the others."""

    def __init__(
        self,
        group: TotalGroup,
        name: str,
        credentials: SigningCredentials,
        own: X25519PrivateKey | None = None,
    ) -> None:
        self._group, self._name, self._credentials = group, name, credentials
        self._own = own or X25519PrivateKey.generate()
        self._keys = {name: self._own.public_key().public_bytes_raw()}

    def announcement(self) -> KeyAnnouncement:
        """Return our key and the list of members, signed."""
        announcement = KeyAnnouncement(
            run=self._group.run,
            name=self._name,
            epoch=self._group.epoch,
            public_key=self._keys[self._name],
            membership=self._group.members,
            level=Level.TOTAL.word,
            certificate=self._credentials.certificate,
        )
        announcement.signature = self._credentials.key.sign(signed_part(announcement), SIGNED_WITH)
        return announcement

    def admit(self, member: str, announcement: KeyAnnouncement, now: datetime) -> None:
        """Accept a member's key, or raise KeyRefusedError with the reason."""
        if member not in self._group.members:
            raise KeyRefusedError(member, "it is no member of the total")
        group, authority = self._group, self._credentials.authority
        reason = (
            _address_fault(group, member, announcement)
            or self._disagreement(announcement)
            or _signature_fault(group, authority, member, announcement, now)
            or self._key_fault(member, announcement.public_key)
        )
        if reason:
            raise KeyRefusedError(member, reason)
        self._keys[member] = announcement.public_key

    @property
    def keys(self) -> tuple[X25519PrivateKey, dict[str, bytes]]:
        """Our own key, and the public keys of all that have arrived."""
        return self._own, dict(self._keys)

    def restore(self, keys: Mapping[str, bytes]) -> None:
        """Take the keys that we had accepted before we were lost."""
        self._keys.update(keys)

    @property
    def missing(self) -> list[str]:
        """Members whose keys have not arrived."""
        return [member for member in self._group.members if member not in self._keys]

    def masks(self) -> Masks:
        """Return the masks of our counts, once all keys have arrived."""
        assert not self.missing
        group = self._group
        keys = {member: self._keys[member] for member in group.members}
        return Masks(self._own, self._name, keys, group.run, group.epoch)

    # --- reasons to refuse -----------------------------------------------------------------------

    def _disagreement(self, announcement: KeyAnnouncement) -> str | None:
        group = self._group
        if announcement.epoch != group.epoch:
            return f"it is for epoch {announcement.epoch}, and this is epoch {group.epoch}"
        if tuple(announcement.membership) != group.members:
            return "its list of members differs from ours"
        return None

    def _key_fault(self, member: str, key: bytes) -> str | None:
        if self._keys.get(member, key) != key:
            return "it announced a different key before"
        for other, taken in self._keys.items():
            if taken == key and other != member:
                return f"it is the key of {other}"
        try:
            shared_secret(self._own, key)
        except ValueError:
            return "it is not a usable X25519 key"
        return None


def check_origin(
    group: TotalGroup,
    authority: x509.Certificate,
    member: str,
    announcement: KeyAnnouncement,
    now: datetime,
) -> None:
    """Raise KeyRefusedError unless a member announced this itself, for whichever epoch."""
    if member not in group.members:
        raise KeyRefusedError(member, "it is no member of the total")
    reason = _address_fault(group, member, announcement) or _signature_fault(
        group, authority, member, announcement, now
    )
    if reason:
        raise KeyRefusedError(member, reason)


def _address_fault(group: TotalGroup, member: str, announcement: KeyAnnouncement) -> str | None:
    if announcement.name != member:
        return "it was announced under another name"
    if announcement.run != group.run:
        return "it was announced for another run"
    if announcement.level != Level.TOTAL.word:
        return f"it discloses {announcement.level[:9]!r}, and a total needs everybody at 'total'"
    return None


def _signature_fault(
    group: TotalGroup,
    authority: x509.Certificate,
    member: str,
    announcement: KeyAnnouncement,
    now: datetime,
) -> str | None:
    try:
        certificate = x509.load_der_x509_certificate(announcement.certificate)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except Exception:  # noqa: BLE001 (untrusted bytes: the parser may raise anything)
        return "its certificate cannot be read"
    if not begin <= now <= end:
        return f"its certificate is valid from {begin} to {end} only"
    policy = PolicyBuilder().store(Store([authority])).time(now)
    try:
        subjects = policy.build_client_verifier().verify(certificate, []).subjects or ()
    except (VerificationError, ValueError):
        return "its certificate was not issued by this run's authority"
    proved = [s.value for s in subjects if isinstance(s, x509.UniformResourceIdentifier)]
    if proved != [group.identity(member).uri]:
        return f"its certificate is that of {', '.join(proved) or 'nobody'}"
    signer = certificate.public_key()
    if not isinstance(signer, ec.EllipticCurvePublicKey):
        return "its certificate's key is not on an elliptic curve"
    try:
        signer.verify(announcement.signature, signed_part(announcement), SIGNED_WITH)
    except InvalidSignature:
        return "its signature does not verify: it was changed on its way"
    return None


def signed_part(announcement: KeyAnnouncement) -> bytes:
    """Return the bytes that an announcement's signature covers: all but the signature itself."""
    return encode_fields(
        LABEL,
        announcement.run,
        announcement.name,
        announcement.epoch,
        announcement.public_key,
        len(announcement.membership),
        *announcement.membership,
        announcement.level,
        announcement.certificate,
    )
