"""Who adds up a total, and by which keys: every member says the same, and signs it.

A key comes over a broker that anybody may run. What makes it the key of a member is the member's
signature, whose certificate the run's authority issued for that member and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fogveil.disclosure import Level
from fogveil.errors import InputError
from fogveil.identity import CLOUD, PROVIDER, Credentials, Identity
from fogveil.v1.total_pb2 import KeyAnnouncement
from provider_node.masking import Masks, agree, spell

FEWEST = 3
"""Of two, each would learn the other's count from the total."""
LABEL = "fogveil key announcement 1"
SIGNED_WITH = ec.ECDSA(hashes.SHA256())


class RefusedError(InputError):
    """A member's announcement is not what it has to be."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(f"the key of {member} was refused: {why}")
        self.member = member


@dataclass(frozen=True)
class Group:
    """The members of a total, as each of them was told before the run."""

    run: str
    members: tuple[str, ...]
    """In the order that all agree on."""
    cloud: str
    epoch: int = 0
    """Which membership of the run this is; nobody leaves or joins within one."""

    def __post_init__(self) -> None:
        if self.cloud not in self.members:
            raise InputError(
                f"a total needs the Cloud among its members, and {self.cloud} is none of "
                f"{', '.join(self.members)}"
            )
        if len(self.members) < FEWEST:
            raise InputError(
                f"a total needs at least {FEWEST} members, with the Cloud: with "
                f"{', '.join(self.members)} each would learn what the other one hides"
            )
        if len(set(self.members)) < len(self.members):
            raise InputError(f"a total has each member once: {', '.join(self.members)}")

    def identity(self, member: str) -> Identity:
        """Return what a member's certificate has to say."""
        return Identity(self.run, CLOUD if member == self.cloud else PROVIDER, member)


@dataclass(frozen=True)
class Papers:
    """What a member signs with, and what it checks the others' signatures by."""

    key: ec.EllipticCurvePrivateKey
    certificate: bytes
    """DER."""
    authority: x509.Certificate

    @classmethod
    def read(cls, credentials: Credentials) -> Self:
        """Read them from a participant's folder."""
        try:
            key = serialization.load_pem_private_key(credentials.key.read_bytes(), None)
            own = x509.load_pem_x509_certificate(credentials.certificate.read_bytes())
            authority = x509.load_pem_x509_certificate(credentials.authority.read_bytes())
        except OSError as error:
            raise InputError(
                f"{error.filename}: the identity cannot be read: {error.strerror}"
            ) from error
        except ValueError as error:
            raise InputError(f"{credentials.folder}: this is no identity: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InputError(f"{credentials.key}: expected a key on an elliptic curve")
        return cls(key, own.public_bytes(serialization.Encoding.DER), authority)


class Membership:
    """One member's side: it announces its own key and admits the others' until all are there."""

    def __init__(
        self, group: Group, name: str, papers: Papers, own: X25519PrivateKey | None = None
    ) -> None:
        self._group, self._name, self._papers = group, name, papers
        self._own = own or X25519PrivateKey.generate()
        self._keys = {name: self._own.public_key().public_bytes_raw()}

    def announcement(self) -> KeyAnnouncement:
        """Say, signed, which key is ours and whom we add up with."""
        made = KeyAnnouncement(
            run=self._group.run,
            name=self._name,
            epoch=self._group.epoch,
            public_key=self._keys[self._name],
            membership=self._group.members,
            level=Level.TOTAL.word,
            certificate=self._papers.certificate,
        )
        made.signature = self._papers.key.sign(signed_part(made), SIGNED_WITH)
        return made

    def admit(self, member: str, told: KeyAnnouncement, now: datetime) -> None:
        """Take what came as a member's announcement, or refuse it with a sentence that names it."""
        if member not in self._group.members:
            raise RefusedError(member, "it is no member of the total")
        fault = (
            self._disagreement(member, told)
            or self._false_papers(member, told, now)
            or self._unusable(member, told.public_key)
        )
        if fault:
            raise RefusedError(member, fault)
        self._keys[member] = told.public_key

    @property
    def missing(self) -> list[str]:
        """Whose keys are still to come."""
        return [member for member in self._group.members if member not in self._keys]

    def masks(self) -> Masks:
        """Return what hides our counts, once all keys are there."""
        assert not self.missing
        group = self._group
        keys = {member: self._keys[member] for member in group.members}
        return Masks(self._own, self._name, keys, group.run, group.epoch)

    # --- reasons to refuse -----------------------------------------------------------------------

    def _disagreement(self, member: str, told: KeyAnnouncement) -> str | None:
        group = self._group
        if told.name != member:
            return "it was announced as somebody else's"
        if told.run != group.run:
            return "it was announced for another run"
        if told.level != Level.TOTAL.word:
            return f"it discloses {told.level[:9]!r}, and a total needs everybody at 'total'"
        if told.epoch != group.epoch:
            return f"it is for membership {told.epoch}, and this is membership {group.epoch}"
        if tuple(told.membership) != group.members:
            return "it adds up with other members than we were told"
        return None

    def _false_papers(self, member: str, told: KeyAnnouncement, now: datetime) -> str | None:
        try:
            certificate = x509.load_der_x509_certificate(told.certificate)
            begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        except Exception:  # noqa: BLE001 (it parses what a stranger sent, and trips as it likes)
            return "its certificate cannot be read"
        if not begin <= now <= end:
            return f"its certificate is valid from {begin} to {end} only"
        policy = PolicyBuilder().store(Store([self._papers.authority])).time(now)
        try:
            subjects = policy.build_client_verifier().verify(certificate, []).subjects or ()
        except (VerificationError, ValueError):
            return "its certificate was not issued by this run's authority"
        proved = [s.value for s in subjects if isinstance(s, x509.UniformResourceIdentifier)]
        if proved != [self._group.identity(member).uri]:
            return f"its certificate is that of {', '.join(proved) or 'nobody'}"
        signer = certificate.public_key()
        if not isinstance(signer, ec.EllipticCurvePublicKey):
            return "its certificate's key is not on an elliptic curve"
        try:
            signer.verify(told.signature, signed_part(told), SIGNED_WITH)
        except InvalidSignature:
            return "its signature is wrong, so it was changed on its way"
        return None

    def _unusable(self, member: str, key: bytes) -> str | None:
        if self._keys.get(member, key) != key:
            return "it announced another one before"
        for other, taken in self._keys.items():
            if taken == key and other != member:
                return f"it is the key of {other}"
        try:
            agree(self._own, key)
        except ValueError:
            return "it is no key that a secret can be agreed on with"
        return None


def signed_part(told: KeyAnnouncement) -> bytes:
    """Spell what an announcement's signature is over: all but the signature itself."""
    return spell(
        LABEL,
        told.run,
        told.name,
        told.epoch,
        told.public_key,
        len(told.membership),
        *told.membership,
        told.level,
        told.certificate,
    )
