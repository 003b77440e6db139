"""Pairwise masks: they hide a member's count, and cancel in the sum over all members.

Each pair of members agrees on a secret (X25519) that nobody else has. From it both derive the same
stream of numbers; the member whose name sorts first adds them, the other subtracts them. Modulo
2^32 a masked count is uniform to everybody who lacks one of the secrets, and the sum over all
members is the sum of their counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from fogveil.core.errors import InfrastructureError

MODULUS = 2**32
BLOCK = 1024
"""Observations whose masks are derived at once: starting a stream is what costs."""
LABEL = "fogveil total 1"

_ZEROS = bytes(4 * BLOCK)
_NONCE = bytes(16)
"""Constant: each stream's key is used for nothing else."""


def encode_fields(*parts: str | bytes | int) -> bytes:
    """Encode values with their lengths, so that no two different lists encode alike.

    >>> encode_fields("ab", "c") == encode_fields("a", "bc")
    False
    """
    encoded = bytearray()
    for part in parts:
        match part:
            case int():
                field = part.to_bytes(8, "big")
            case str():
                field = part.encode()
            case _:
                field = part
        encoded += len(field).to_bytes(8, "big") + field
    return bytes(encoded)


def shared_secret(own: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret shared with the owner of a key; ValueError if the key is unusable."""
    return own.exchange(X25519PublicKey.from_public_bytes(public))


class _Pair(NamedTuple):
    """The secret that a member shares with one other."""

    key: bytes
    adds: bool
    """Whether this member adds the numbers that the other one subtracts."""


class Masks:
    """Turns the counts of one member into shares.

    A mask is bound to the run, the membership with all its keys, the episode and the observation's
    index, and does not depend on any count. No index is answered with two values: their difference
    would be the difference of two counts.
    """

    def __init__(
        self, own: X25519PrivateKey, name: str, keys: Mapping[str, bytes], run: str, epoch: int
    ) -> None:
        self._name = name
        members = [part for member in keys.items() for part in member]
        digest = hashes.Hash(hashes.SHA256())
        digest.update(encode_fields(LABEL, run, epoch, len(keys), *members))
        agreed = digest.finalize()
        self._pairs: list[_Pair] = []
        for other, public in keys.items():
            if other != name:
                both = sorted((name, other))
                derive = HKDF(hashes.SHA256(), 32, salt=agreed, info=encode_fields("pair", *both))
                self._pairs.append(
                    _Pair(derive.derive(shared_secret(own, public)), name == both[0])
                )
        self._episode = -1

    def _begin(self, episode: int) -> None:
        if episode < self._episode:
            raise InfrastructureError(
                f"{self._name} was asked about episode {episode}, which is over"
            )
        self._episode = episode
        self._counts, self._shares = array("I"), array("I")
        """What was sent in this episode."""
        self._streams = []
        for key, adds in self._pairs:
            derive = HKDFExpand(hashes.SHA256(), 32, info=encode_fields("episode", episode))
            stream = Cipher(ChaCha20(derive.derive(key), _NONCE), None).encryptor()
            self._streams.append((stream, np.add if adds else np.subtract))

    def share(self, episode: int, index: int, count: int) -> int:
        """Return the share of a count; observations come in order, from 0 on."""
        if episode != self._episode:
            self._begin(episode)
        sent = len(self._counts)
        if index < sent:
            if self._counts[index] != count:
                raise InfrastructureError(
                    f"{self._name} was asked again for observation {index} of episode {episode}, "
                    "with another count: an observation has one value"
                )
            return self._shares[index]
        if index > sent:
            raise InfrastructureError(
                f"{self._name} was asked for observation {index} of episode {episode} "
                f"before observation {sent}"
            )
        if index % BLOCK == 0:
            self._masks = self._next_masks()
        share = (count + self._masks[index % BLOCK]) % MODULUS
        self._counts.append(count)
        self._shares.append(share)
        return share

    def _next_masks(self) -> list[int]:
        """Return the sums of all pairs' numbers for the next block of observations."""
        masks: npt.NDArray[np.uint32] = np.zeros(BLOCK, np.uint32)
        for stream, combine in self._streams:
            numbers = np.frombuffer(stream.update(_ZEROS), "<u4")
            combine(masks, numbers, out=masks)
        summed: list[int] = masks.tolist()
        return summed
