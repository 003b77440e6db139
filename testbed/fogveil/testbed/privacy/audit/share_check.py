"""The share check: at level `total` what the agent receives tells nothing but the sum."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from google.protobuf.message import DecodeError

from fogveil.broker.topics import Topics
from fogveil.protocol.identity import AGENT
from fogveil.provider_node.membership import signed_part
from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.findings import Finding, judge
from fogveil.testbed.privacy.audit.reference import WATCH_TOTAL
from fogveil.v1.total_pb2 import KeyAnnouncement, TotalServiceWatchResponse

MODULUS = 2**32
NEAR = 256
"""Two shares under one mask differ by less than this."""
SMALL = 2**16
"""A sum of counts is less than this; a sum that masks hide is so by chance once in 2^15."""
TOLERATED = 3
"""Events that are tolerated beyond those expected by chance."""
MOST_SUBSETS = 2**12
CHI_SQUARE_LIMIT = 400.0
"""Of 255 degrees of freedom: exceeded by chance once in 10^8."""
LEAST_FOR_UNIFORMITY = 200
BIT_LIMIT = 7.0
"""Standard deviations from as many ones as zeros: exceeded by chance once in 10^11."""
LEAST_FOR_BITS = 100

Shares = npt.NDArray[np.int64]


def shares_of(evidence: Evidence, name: str) -> Shares:
    """Return the shares that the agent received from a provider, in order."""
    shares: list[int] = []
    for message in evidence.traffic.messages.get((name, AGENT, WATCH_TOTAL), []):
        parsed = TotalServiceWatchResponse()
        try:
            parsed.ParseFromString(message.payload)
        except DecodeError:
            continue  # the message check names it
        shares += parsed.shares
    return np.array(shares, np.int64)


def check_shares(evidence: Evidence) -> Finding:
    """Check sums, masks and keys of a run at level `total`."""
    promise = "shares: they sum to the true total, and tell nothing else"
    names = evidence.providers
    shares = {name: shares_of(evidence, name) for name in names}
    counts = {
        name: np.array([*chain(*evidence.reference.counts.get(name, []))], np.int64)
        for name in names
    }
    number = sum(map(len, shares.values()))
    groups = "subset" if 2 ** len(names) <= MOST_SUBSETS else "pair"
    faults = [*_key_faults(evidence)]
    lengths = {len(values) for values in (*shares.values(), *counts.values())}
    if len(lengths) != 1:
        faults.append(f"providers sent different numbers of shares: {sorted(lengths)}")
    else:
        faults += _sum_faults(shares, counts)
        for name in names:
            faults += _mask_faults(name, shares[name], counts[name])
        faults += _subset_faults(shares)
    text = (
        f"{number:,} shares of {len(names)} members add up to the true totals of the reference; no "
        f"member's shares, and no {groups}'s sums, are small or near each other more often than "
        "by chance; bytes of shares and bits of masks are uniform; keys are "
        "distinct, usable and signed by the certificates that were issued"
    )
    return judge(promise, text, faults, number, "no share was sent")


def _sum_faults(shares: dict[str, Shares], counts: dict[str, Shares]) -> Iterator[str]:
    total = np.sum([*shares.values()], axis=0) % MODULUS
    true = np.sum([*counts.values()], axis=0)
    for at in np.flatnonzero(total != true):
        yield f"the total at decision {at + 1} is {total[at]}, by the reference {true[at]}"


def _mask_faults(name: str, shares: Shares, counts: Shares) -> Iterator[str]:
    expected = len(shares) ** 2 * NEAR / MODULUS
    near = int((np.diff(np.sort(shares)) < NEAR).sum())
    if near > TOLERATED + 4 * expected:
        yield f"{near} of {len(shares)} shares of {name} lie within {NEAR} of another"
    masks = np.sort((shares - counts) % MODULUS)
    reused = int((np.diff(masks) == 0).sum())
    if reused > TOLERATED:
        yield f"{reused} masks of {name} are used twice"
    for bit in range(32) if len(masks) >= LEAST_FOR_BITS else ():
        ones = int((masks >> bit & 1).sum())
        if abs(ones - len(masks) / 2) > BIT_LIMIT * len(masks) ** 0.5 / 2:
            yield f"bit {bit} of {name}'s masks is set {ones} times of {len(masks)}"
    if (bare := int((shares == counts).sum())) > 0:
        yield f"{bare} shares of {name} are its bare counts"
    if len(shares) >= LEAST_FOR_UNIFORMITY:
        octets = np.bincount(shares.astype("<u4").view(np.uint8), minlength=256)
        even = octets.sum() / 256
        statistic = float(((octets - even) ** 2 / even).sum())
        if statistic > CHI_SQUARE_LIMIT:
            yield f"the bytes of {name}'s shares are not uniform (chi-square {statistic:.0f})"


def _subset_faults(shares: dict[str, Shares]) -> Iterator[str]:
    """Yield groups of members whose shares add up to small numbers: their masks cancel."""
    names = list(shares)
    largest = len(names) - 1 if 2 ** len(names) <= MOST_SUBSETS else 2
    for size in range(1, largest + 1):
        for group in combinations(names, size):
            total = np.sum([shares[name] for name in group], axis=0) % MODULUS
            small = int((np.minimum(total, MODULUS - total) < SMALL).sum())
            if small > TOLERATED + len(total) * 2 * SMALL / MODULUS * 4:
                yield f"{small} sums of the shares of {', '.join(group)} are small: not masked"


def _key_faults(evidence: Evidence) -> Iterator[str]:
    keys: dict[bytes, str] = {}
    topics = Topics(evidence.wire.run)
    for name in evidence.providers:
        for packet in evidence.traffic.published.get((name, topics.keys(name)), []):
            message = KeyAnnouncement()
            try:
                message.ParseFromString(packet.payload)
            except DecodeError:
                continue  # the delivery check names it
            if message.public_key in keys:
                yield f"{name} has the key of {keys[message.public_key]}"
            keys[message.public_key] = name
            try:
                peer = X25519PublicKey.from_public_bytes(message.public_key)
                X25519PrivateKey.generate().exchange(peer)
            except ValueError:
                yield f"{name} announced a key that hides nothing"
            signer = x509.load_der_x509_certificate(evidence.certificates[name]).public_key()
            assert isinstance(signer, ec.EllipticCurvePublicKey)
            try:
                signer.verify(message.signature, signed_part(message), ec.ECDSA(hashes.SHA256()))
            except InvalidSignature:
                yield f"the signature of {name}'s key does not verify"
