"""What the tests of secure totals share: providers' sides of the sum, with valid identities."""

from __future__ import annotations

from support import make_world

from fogveil.provider_node.masking import MODULUS
from fogveil.provider_node.membership import TotalGroup
from fogveil.provider_node.secure_sum import SecureSum
from fogveil.provider_node.settings import ProviderSettings, TotalMembers

NAMES = ("fog-1", "fog-2", "fog-3", "cloud")
GROUP = TotalGroup("run", NAMES, "cloud")


def make_total(name, folder, mint, *, secure=True, names=NAMES):
    """Return a provider's side of the secure sum, as its process has it."""
    mint.issue(GROUP.identity(name), folder / "identity")
    return SecureSum(
        ProviderSettings(
            name=name,
            run="run",
            clock="",
            broker="",
            own_broker=True,
            lifeline=False,
            secure=secure,
            record=False,
            user=None,
            folder=folder,
            provider=make_world().provider("cloud" if name == "cloud" else "fog-1"),
            total=TotalMembers(names, "cloud"),
            owners=(),
            fogs=(),
            listen="",
        )
    )


def sums(members, counts):
    """Return what members' shares of the same counts add up to."""
    shares = [member.shares(counts) for member in members]
    return [sum(row) % MODULUS for row in zip(*shares, strict=True)]
