"""Masks that hide a count and cancel in the sum: one member's side of a secure total.

Each two members agree on a secret (X25519) that nobody else has. From it both derive the same
stream of numbers; the one whose name comes first adds them, the other takes them away. Modulo
2^32 a count plus such numbers is uniform to everybody who lacks one of the secrets, and the sum
over all members is the sum of their counts.
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

from fogveil.errors import SurroundingsError

MODULUS = 2**32
BLOCK = 1024
"""Observations whose masks are derived at once: a stream costs most where it begins."""
LABEL = "fogveil total 1"

_NOTHING = bytes(4 * BLOCK)
_START = bytes(16)
"""Of a stream whose key is used for nothing else."""


def spell(*parts: str | bytes | int) -> bytes:
    """Spell values in one way only, so that no two different lists are spelled alike.

    >>> spell("ab", "c") == spell("a", "bc")
    False
    """
    spelled = bytearray()
    for part in parts:
        match part:
            case int():
                piece = part.to_bytes(8, "big")
            case str():
                piece = part.encode()
            case _:
                piece = part
        spelled += len(piece).to_bytes(8, "big") + piece
    return bytes(spelled)


def agree(own: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret shared with the owner of a key; ValueError where it is no proper key."""
    return own.exchange(X25519PublicKey.from_public_bytes(public))


class _Pair(NamedTuple):
    """What a member has in common with one other."""

    key: bytes
    adds: bool
    """Whether this member adds the numbers that the other takes away."""


class Masks:
    """Turns the counts of one member into shares, each bound to what it is a share of.

    A mask depends on the run, the membership with all its keys, the episode and the observation's
    index, and on nothing that is told. No index is answered with two values: their difference
    would be the difference of two counts.
    """

    def __init__(
        self, own: X25519PrivateKey, name: str, keys: Mapping[str, bytes], run: str, epoch: int
    ) -> None:
        self._name = name
        members = [part for member in keys.items() for part in member]
        digest = hashes.Hash(hashes.SHA256())
        digest.update(spell(LABEL, run, epoch, len(keys), *members))
        agreed = digest.finalize()
        self._pairs: list[_Pair] = []
        for other, public in keys.items():
            if other != name:
                both = sorted((name, other))
                derive = HKDF(hashes.SHA256(), 32, salt=agreed, info=spell("pair", *both))
                self._pairs.append(_Pair(derive.derive(agree(own, public)), name == both[0]))
        self._episode = -1

    def _begin(self, episode: int) -> None:
        if episode < self._episode:
            raise SurroundingsError(
                f"{self._name} was asked about episode {episode}, which is over"
            )
        self._episode = episode
        self._counts, self._shares = array("I"), array("I")
        """What was told in this episode."""
        self._streams = []
        for key, adds in self._pairs:
            derive = HKDFExpand(hashes.SHA256(), 32, info=spell("episode", episode))
            stream = Cipher(ChaCha20(derive.derive(key), _START), None).encryptor()
            self._streams.append((stream, np.add if adds else np.subtract))

    def share(self, episode: int, index: int, count: int) -> int:
        """Return what may be told at an observation; they come in order, from 0 on."""
        if episode != self._episode:
            self._begin(episode)
        told = len(self._counts)
        if index < told:
            if self._counts[index] != count:
                raise SurroundingsError(
                    f"{self._name} was asked again for observation {index} of episode {episode}, "
                    "and tells no second value"
                )
            return self._shares[index]
        if index > told:
            raise SurroundingsError(
                f"{self._name} was asked for observation {index} of episode {episode} "
                f"before observation {told}"
            )
        if index % BLOCK == 0:
            self._masks = self._next_masks()
        share = (count + self._masks[index % BLOCK]) % MODULUS
        self._counts.append(count)
        self._shares.append(share)
        return share

    def _next_masks(self) -> list[int]:
        """Add the numbers of all pairs, for the next observations."""
        masks: npt.NDArray[np.uint32] = np.zeros(BLOCK, np.uint32)
        for stream, combine in self._streams:
            numbers = np.frombuffer(stream.update(_NOTHING), "<u4")
            combine(masks, numbers, out=masks)
        summed: list[int] = masks.tolist()
        return summed
