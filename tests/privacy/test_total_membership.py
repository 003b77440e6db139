"""Who takes part in a total: every announcement but a member's own true one is refused."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from google.protobuf.message import DecodeError

from fogveil.errors import InputError, LostError
from fogveil.identity import Identity
from fogveil.settings import Settings
from fogveil.v1.total_pb2 import KeyAnnouncement
from provider_node.masking import MODULUS
from provider_node.membership import (
    SIGNED_WITH,
    Group,
    Membership,
    Papers,
    RefusedError,
    signed_part,
)
from provider_node.totals import Totals
from testbed.federated.identities import Mint

NAMES = ("fog-1", "fog-2", "fog-3", "cloud")
GROUP = Group("run", NAMES, "cloud")


def now():
    """Certificates are minted during the run, and not valid long before."""
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def mint():
    return Mint("run")


@pytest.fixture
def member(tmp_path, mint):
    """Make a member's side, with papers of the run or of another sort."""
    made = 0

    def make(name, group=GROUP, identity=None, mint=mint, lifetime=None):
        nonlocal made
        made += 1
        papers = mint.issue(identity or group.identity(name), tmp_path / str(made), lifetime)
        return Membership(group, name, Papers.read(papers))

    return make


def test_members_agree_and_add_up(member):
    members = {name: member(name) for name in NAMES}
    for name, own in members.items():
        assert own.missing == [other for other in NAMES if other != name]
        for other, their in members.items():
            if other != name:
                own.admit(other, their.announcement(), now())
                own.admit(other, their.announcement(), now())  # a relay may say it twice
        assert own.missing == []
    group = [members[name].masks() for name in NAMES]
    assert sum(masks.share(0, 0, 5) for masks in group) % MODULUS == 20


def test_a_member_never_repeats_its_key(member):
    keys = {member("fog-2").announcement().public_key for _ in range(5)}
    assert len(keys) == 5


def refusal(own, name, told):
    before = own.missing
    with pytest.raises(RefusedError) as caught:
        own.admit(name, told, now())
    assert own.missing == before
    sentence = str(caught.value)
    assert sentence.startswith(f"the key of {name} was refused: ")
    assert "\n" not in sentence
    return sentence


def changed(told, **fields):
    """The announcement as somebody changes it who cannot sign for the member."""
    for name, value in fields.items():
        if name == "membership":
            del told.membership[:]
            told.membership.extend(value)
        else:
            setattr(told, name, value)
    return told


def signed(own, **fields):
    """The announcement as the member itself would make it with other contents."""
    told = changed(own.announcement(), **fields)
    told.signature = own._papers.key.sign(signed_part(told), SIGNED_WITH)
    return told


def test_a_swapped_key_is_refused(member):
    other = X25519PrivateKey.generate().public_key().public_bytes_raw()
    told = changed(member("fog-2").announcement(), public_key=other)
    assert "its signature is wrong" in refusal(member("fog-1"), "fog-2", told)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"run": "other"}, "another run"),
        ({"name": "fog-3"}, "somebody else's"),
        ({"epoch": 1}, "membership 1, and this is membership 0"),
        ({"level": "count"}, "it discloses 'count'"),
        ({"membership": NAMES[:3]}, "other members"),
        ({"membership": NAMES[::-1]}, "other members"),
        ({"membership": (*NAMES, "fog-9")}, "other members"),
        ({"public_key": b""}, "no key"),
        ({"public_key": bytes(32)}, "no key"),
        ({"public_key": bytes(31)}, "no key"),
        ({"certificate": b"what"}, "its certificate cannot be read"),
    ],
)
def test_other_contents_are_refused_even_where_they_are_signed(member, fields, why):
    own, their = member("fog-1"), member("fog-2")
    assert why in refusal(own, "fog-2", signed(their, **fields))
    if "public_key" not in fields:
        assert why in refusal(own, "fog-2", changed(their.announcement(), **fields))


@pytest.mark.parametrize("field", ["run", "name", "epoch", "public_key", "level", "membership"])
def test_the_signature_is_over_every_field(member, field):
    told = member("fog-2").announcement()
    other = {"epoch": 3, "public_key": bytes(range(32)), "membership": NAMES[::-1]}
    assert signed_part(told) != signed_part(changed(told, **{field: other.get(field, "other")}))


def test_no_byte_of_an_announcement_can_be_changed(member):
    own = member("fog-1")
    whole = member("fog-2").announcement().SerializeToString()
    for place, byte in enumerate(whole):
        for other in (byte ^ 1, byte ^ 0x80):
            try:
                told = KeyAnnouncement.FromString(
                    whole[:place] + bytes([other]) + whole[place + 1 :]
                )
            except DecodeError:
                continue
            refusal(own, "fog-2", told)


def test_an_announcement_is_good_for_its_member_only(member):
    told = member("fog-2").announcement()
    assert "somebody else's" in refusal(member("fog-1"), "fog-3", told)
    forged = signed(member("fog-2"), name="fog-3")
    expected = "its certificate is that of spiffe://fogveil/run/provider/fog-2"
    assert expected in refusal(member("fog-1"), "fog-3", forged)


def test_a_stranger_is_refused(member):
    told = signed(member("fog-2"), name="fog-9")
    assert "it is no member" in refusal(member("fog-1"), "fog-9", told)


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
    told = member("fog-2", identity=identity).announcement()
    expected = f"its certificate is that of {identity.uri}"
    assert expected in refusal(member("fog-1"), "fog-2", told)


def test_a_provider_does_not_pass_for_the_cloud(member):
    told = member("cloud", identity=Identity("run", "provider", "cloud")).announcement()
    assert "spiffe://fogveil/run/provider/cloud" in refusal(member("fog-1"), "cloud", told)


def test_a_foreign_authority_is_refused(member):
    told = member("fog-2", mint=Mint("run")).announcement()
    assert "not issued by this run's authority" in refusal(member("fog-1"), "fog-2", told)


@pytest.mark.parametrize("days", [(-2, -1), (1, 2)])
def test_a_certificate_out_of_its_time_is_refused(member, days):
    begin, end = (now() + timedelta(days=day) for day in days)
    told = member("fog-2", lifetime=(begin, end)).announcement()
    assert "its certificate is valid from" in refusal(member("fog-1"), "fog-2", told)


def test_a_second_key_is_refused(member):
    own = member("fog-1")
    own.admit("fog-2", member("fog-2").announcement(), now())
    assert "another one before" in refusal(own, "fog-2", member("fog-2").announcement())


def test_one_key_for_two_members_is_refused(member):
    own, their = member("fog-1"), member("fog-2")
    told = their.announcement()
    own.admit("fog-2", told, now())
    copied = signed(member("fog-3"), public_key=told.public_key)
    assert "it is the key of fog-2" in refusal(own, "fog-3", copied)
    mirrored = signed(member("cloud"), public_key=own.announcement().public_key)
    assert "it is the key of fog-1" in refusal(own, "cloud", mirrored)


@pytest.mark.parametrize(
    ("members", "cloud", "why"),
    [
        (("fog-1", "cloud"), "cloud", "at least 3 members, with the Cloud: with fog-1, cloud"),
        (("cloud",), "cloud", "at least 3 members"),
        (("fog-1", "fog-2", "fog-3"), "cloud", "needs the Cloud among its members, and cloud is"),
        (("fog-1", "fog-1", "cloud"), "cloud", "each member once"),
    ],
)
def test_a_group_that_could_not_hide_anybody_is_refused(members, cloud, why):
    with pytest.raises(InputError, match=why):
        Group("run", members, cloud)


# --- waiting for each other ----------------------------------------------------------------------


@pytest.fixture
def totals(tmp_path, mint):
    """Make a provider's part, as its process does."""

    def make(name, *, secure=True):
        folder = tmp_path / name
        mint.issue(GROUP.identity(name), folder / "identity")
        given = {
            "clock": "",
            "broker": "",
            "own_broker": True,
            "lifeline": False,
            "record": False,
            "user": None,
        }
        own = {"total": {"members": list(NAMES), "cloud": "cloud"}}
        return Totals(
            Settings(name=name, run="run", secure=secure, own=own, folder=folder, **given)
        )

    return make


def sums(members, counts):
    told = [member.shares(counts) for member in members]
    return [sum(row) % MODULUS for row in zip(*told, strict=True)]


def test_members_wait_for_each_other_and_go_on_through_episodes(totals):
    async def go():
        members = {name: totals(name) for name in NAMES}
        for own, member in members.items():
            waiting = asyncio.ensure_future(member.begin(0))
            member.receive(own, member.announcement())  # the broker gives it back
            for name in set(NAMES) - {own}:
                member.receive(name, b"\xff what is no message")
                await asyncio.sleep(0)
                assert not waiting.done()
                member.receive(name, members[name].announcement())
            await waiting
        assert sums(members.values(), [1, 2]) == [4, 8]
        assert sums(members.values(), [3]) == [12]
        for member in members.values():
            await member.begin(1)
        assert sums(members.values(), [0, 7]) == [0, 28]

    asyncio.run(go())


def test_who_is_missing_is_named(totals):
    async def go():
        own = totals("fog-1")
        own.receive("fog-3", totals("fog-3").announcement())
        with pytest.raises(LostError, match="waited 0.01 s for the key of fog-2, cloud") as caught:
            await own.begin(0, patience=0.01)
        assert caught.value.who == "fog-2"

    asyncio.run(go())


def test_who_was_refused_is_named_with_the_reason(totals, member):
    async def go():
        own = totals("fog-1")
        for name in ("fog-3", "cloud"):
            own.receive(name, totals(name).announcement())
        forged = member("fog-2", mint=Mint("run")).announcement()
        own.receive("fog-2", forged.SerializeToString())
        with pytest.raises(RefusedError, match="the key of fog-2 was refused: its certificate"):
            await own.begin(0, patience=0.01)
        # The true one may still come: a run is not ended by whoever can disturb its relay.
        own.receive("fog-2", totals("fog-2").announcement())
        await own.begin(0, patience=0.01)
        assert len(own.shares([0, 0, 0])) == 3

    asyncio.run(go())


def test_without_an_identity_there_is_no_total(totals):
    with pytest.raises(InputError, match="fog-1 discloses 'total', whose keys are signed"):
        totals("fog-1", secure=False)
