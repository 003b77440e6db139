"""Membership of a secure total: only a member's own, valid announcement is admitted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from google.protobuf.message import DecodeError
from total_support import GROUP, NAMES, make_total, sums

from fogveil.core.errors import InputError, LostError
from fogveil.protocol.identity import Identity
from fogveil.provider_node.masking import MODULUS
from fogveil.provider_node.membership import (
    SIGNED_WITH,
    KeyRefusedError,
    Membership,
    SigningCredentials,
    TotalGroup,
    signed_part,
)
from fogveil.testbed.launch.certificates import Mint
from fogveil.v1.total_pb2 import KeyAnnouncement


def now():
    """Return the time of the call: certificates are valid from shortly before they are issued."""
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def mint():
    return Mint("run")


@pytest.fixture
def member(tmp_path, mint):
    """Return a function that makes a member, with valid credentials or others."""
    numbers = count()

    def make(name, group=GROUP, identity=None, mint=mint, lifetime=None):
        folder = tmp_path / str(next(numbers))
        credentials = mint.issue(identity or group.identity(name), folder, lifetime)
        return Membership(group, name, SigningCredentials.read(credentials))

    return make


def test_members_agree_and_add_up(member):
    members = {name: member(name) for name in NAMES}
    for name, receiver in members.items():
        assert receiver.missing == [other for other in NAMES if other != name]
        for other, sender in members.items():
            if other != name:
                receiver.admit(other, sender.announcement(), now())
                receiver.admit(other, sender.announcement(), now())  # a relay may deliver it twice
        assert receiver.missing == []
    group = [members[name].masks() for name in NAMES]
    assert sum(masks.share(0, 0, 5) for masks in group) % MODULUS == 20


def test_a_member_never_repeats_its_key(member):
    keys = {member("fog-2").announcement().public_key for _ in range(5)}
    assert len(keys) == 5


def refusal(receiver, name, announcement):
    before = receiver.missing
    with pytest.raises(KeyRefusedError) as caught:
        receiver.admit(name, announcement, now())
    assert receiver.missing == before
    text = str(caught.value)
    assert text.startswith(f"the key of {name} was refused: ")
    assert "\n" not in text
    return text


def changed(announcement, **fields):
    """Change an announcement without signing it again."""
    for name, value in fields.items():
        if name == "membership":
            del announcement.membership[:]
            announcement.membership.extend(value)
        else:
            setattr(announcement, name, value)
    return announcement


def signed(sender, **fields):
    """Return a member's announcement with other contents, signed by the member."""
    announcement = changed(sender.announcement(), **fields)
    announcement.signature = sender._credentials.key.sign(signed_part(announcement), SIGNED_WITH)
    return announcement


def test_a_swapped_key_is_refused(member):
    other = X25519PrivateKey.generate().public_key().public_bytes_raw()
    announcement = changed(member("fog-2").announcement(), public_key=other)
    assert "its signature does not verify" in refusal(member("fog-1"), "fog-2", announcement)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"run": "other"}, "another run"),
        ({"name": "fog-3"}, "another name"),
        ({"epoch": 1}, "epoch 1, and this is epoch 0"),
        ({"level": "count"}, "it discloses 'count'"),
        ({"membership": NAMES[:3]}, "list of members differs"),
        ({"membership": NAMES[::-1]}, "list of members differs"),
        ({"membership": (*NAMES, "fog-9")}, "list of members differs"),
        ({"public_key": b""}, "not a usable"),
        ({"public_key": bytes(32)}, "not a usable"),
        ({"public_key": bytes(31)}, "not a usable"),
        ({"certificate": b"what"}, "its certificate cannot be read"),
    ],
)
def test_wrong_contents_are_refused_even_if_signed(member, fields, why):
    receiver, sender = member("fog-1"), member("fog-2")
    assert why in refusal(receiver, "fog-2", signed(sender, **fields))
    if "public_key" not in fields:
        assert why in refusal(receiver, "fog-2", changed(sender.announcement(), **fields))


@pytest.mark.parametrize("field", ["run", "name", "epoch", "public_key", "level", "membership"])
def test_the_signature_covers_every_field(member, field):
    announcement = member("fog-2").announcement()
    other = {"epoch": 3, "public_key": bytes(range(32)), "membership": NAMES[::-1]}
    assert signed_part(announcement) != signed_part(
        changed(announcement, **{field: other.get(field, "other")})
    )


def test_no_byte_of_an_announcement_can_be_changed(member):
    receiver = member("fog-1")
    whole = member("fog-2").announcement().SerializeToString()
    for place, byte in enumerate(whole):
        for other in (byte ^ 1, byte ^ 0x80):
            try:
                announcement = KeyAnnouncement.FromString(
                    whole[:place] + bytes([other]) + whole[place + 1 :]
                )
            except DecodeError:
                continue
            refusal(receiver, "fog-2", announcement)


def test_an_announcement_is_valid_for_its_member_only(member):
    announcement = member("fog-2").announcement()
    assert "another name" in refusal(member("fog-1"), "fog-3", announcement)
    forged = signed(member("fog-2"), name="fog-3")
    expected = "its certificate is that of spiffe://fogveil/run/provider/fog-2"
    assert expected in refusal(member("fog-1"), "fog-3", forged)


def test_a_non_member_is_refused(member):
    announcement = signed(member("fog-2"), name="fog-9")
    assert "it is no member" in refusal(member("fog-1"), "fog-9", announcement)


@pytest.mark.parametrize(
    "identity",
    [
        Identity("run", "agent", "agent"),
        Identity("run", "sources", "fog-2"),
        Identity("run", "agent", "fog-2"),
        Identity("run", "cloud", "fog-2"),
        Identity("run", "provider", "fog-3"),
    ],
)
def test_another_certificate_of_the_authority_is_refused(member, identity):
    announcement = member("fog-2", identity=identity).announcement()
    expected = f"its certificate is that of {identity.uri}"
    assert expected in refusal(member("fog-1"), "fog-2", announcement)


def test_a_provider_cannot_announce_as_the_cloud(member):
    announcement = member("cloud", identity=Identity("run", "provider", "cloud")).announcement()
    assert "spiffe://fogveil/run/provider/cloud" in refusal(member("fog-1"), "cloud", announcement)


def test_a_foreign_authority_is_refused(member):
    announcement = member("fog-2", mint=Mint("run")).announcement()
    assert "not issued by this run's authority" in refusal(member("fog-1"), "fog-2", announcement)


@pytest.mark.parametrize("days", [(-2, -1), (1, 2)])
def test_an_expired_or_future_certificate_is_refused(member, days):
    begin, end = (now() + timedelta(days=day) for day in days)
    announcement = member("fog-2", lifetime=(begin, end)).announcement()
    assert "its certificate is valid from" in refusal(member("fog-1"), "fog-2", announcement)


def test_a_second_key_is_refused(member):
    receiver = member("fog-1")
    receiver.admit("fog-2", member("fog-2").announcement(), now())
    assert "a different key before" in refusal(receiver, "fog-2", member("fog-2").announcement())


def test_one_key_for_two_members_is_refused(member):
    receiver, sender = member("fog-1"), member("fog-2")
    announcement = sender.announcement()
    receiver.admit("fog-2", announcement, now())
    copied = signed(member("fog-3"), public_key=announcement.public_key)
    assert "it is the key of fog-2" in refusal(receiver, "fog-3", copied)
    mirrored = signed(member("cloud"), public_key=receiver.announcement().public_key)
    assert "it is the key of fog-1" in refusal(receiver, "cloud", mirrored)


@pytest.mark.parametrize(
    ("members", "cloud", "why"),
    [
        (("fog-1", "cloud"), "cloud", "at least 3 members, with the Cloud: with fog-1, cloud"),
        (("cloud",), "cloud", "at least 3 members"),
        (("fog-1", "fog-2", "fog-3"), "cloud", "needs the Cloud among its members, and cloud is"),
        (("fog-1", "fog-1", "cloud"), "cloud", "each member once"),
    ],
)
def test_a_group_that_hides_no_count_is_refused(members, cloud, why):
    with pytest.raises(InputError, match=why):
        TotalGroup("run", members, cloud)


# --- waiting for each other ----------------------------------------------------------------------


@pytest.fixture
def totals(tmp_path, mint):
    """Return a function that makes a provider's side of the secure sum, as its process does."""

    def make(name, *, secure=True):
        total = make_total(name, tmp_path / name, mint, secure=secure)
        assert total.open(0)
        return total

    return make


def test_members_wait_for_all_keys_and_keep_them_over_episodes(totals):
    async def go():
        members = {name: totals(name) for name in NAMES}
        for name, member in members.items():
            waiting = asyncio.ensure_future(member.agree())
            member.receive(name, member.announcement())  # the broker delivers it to its sender, too
            for other in set(NAMES) - {name}:
                member.receive(other, b"\xff not a message")
                await asyncio.sleep(0)
                assert not waiting.done()
                member.receive(other, members[other].announcement())
            await waiting
        assert sums(members.values(), [1, 2]) == [4, 8]
        assert sums(members.values(), [3]) == [12]
        for member in members.values():
            member.begin(1)
        assert sums(members.values(), [0, 7]) == [0, 28]

    asyncio.run(go())


def test_a_missing_member_is_named(totals):
    async def go():
        provider = totals("fog-1")
        provider.receive("fog-3", totals("fog-3").announcement())
        with pytest.raises(LostError, match="waited 0.01 s for the key of fog-2, cloud") as caught:
            await provider.agree(patience=0.01)
        assert caught.value.who == "fog-2"

    asyncio.run(go())


def test_a_refused_member_is_named_with_the_reason(totals, member):
    async def go():
        provider = totals("fog-1")
        for name in ("fog-3", "cloud"):
            provider.receive(name, totals(name).announcement())
        forged = member("fog-2", mint=Mint("run")).announcement()
        provider.receive("fog-2", forged.SerializeToString())
        with pytest.raises(KeyRefusedError, match="the key of fog-2 was refused: its certificate"):
            await provider.agree(patience=0.01)
        # The valid one may still come: a disturbed relay does not end the run.
        provider.receive("fog-2", totals("fog-2").announcement())
        await provider.agree(patience=0.01)
        assert len(provider.shares([0, 0, 0])) == 3

    asyncio.run(go())


def test_a_total_needs_an_identity(totals):
    with pytest.raises(InputError, match="fog-1 discloses 'total', which needs an identity"):
        totals("fog-1", secure=False)
