"""Epochs of a secure total: providers come and go, and masks with them."""

from __future__ import annotations

import asyncio
import logging
from itertools import chain

import pytest
from support import make_world
from total_support import GROUP, NAMES, make_total, sums

from fogveil.agent.share_sum import ShareSum
from fogveil.core.errors import InfrastructureError, InputError, LostError, MisbehaviourError
from fogveil.provider_node.membership import (
    SIGNED_WITH,
    SigningCredentials,
    signed_part,
)
from fogveil.testbed.launch.certificates import Mint
from fogveil.v1.total_pb2 import KeyAnnouncement

WITHOUT_SECOND = (0, 2)
"""The Fog providers that tell their counts, by number."""


@pytest.fixture(scope="module")
def mint():
    return Mint("run")


@pytest.fixture
def total(tmp_path, mint):
    """Return a function that makes a provider's side of the sum in no epoch, as when it starts."""
    return lambda name: make_total(name, tmp_path / name, mint)


@pytest.fixture
def group(total):
    return {name: total(name) for name in NAMES}


async def open_epoch(group, epoch, telling=None):
    """Let all providers agree on an epoch; return the announcements of its members."""
    announced = {
        name: member.announcement() for name, member in group.items() if member.open(epoch, telling)
    }
    for name, announcement in announced.items():
        for member in group.values():
            member.receive(name, announcement)
    for name in announced:
        await group[name].agree(patience=0.1)
    return announced


def parsed(announcement):
    return KeyAnnouncement.FromString(announcement)


# --- what an epoch is ----------------------------------------------------------------------------


def test_those_that_tell_add_up_in_every_epoch(group):
    async def go():
        await open_epoch(group, 0)
        assert sums(group.values(), [1, 2]) == [4, 8]
        announced = await open_epoch(group, 1, WITHOUT_SECOND)
        assert [*parsed(announced["fog-1"]).membership] == ["fog-1", "fog-3", "cloud"]
        present = [group[name] for name in announced]
        assert sums(present, [5]) == [15]
        await open_epoch(group, 2)
        assert sums(group.values(), [7, 0]) == [28, 0]
        for member in group.values():
            member.begin(1)
        assert sums(group.values(), [3]) == [12]

    asyncio.run(go())


def test_no_epoch_has_a_key_or_a_mask_of_another(group):
    """Equal counts at equal indices: what differs are the masks."""

    async def go():
        keys, shares = [], []
        for epoch, telling in enumerate((None, WITHOUT_SECOND, None, WITHOUT_SECOND)):
            announced = await open_epoch(group, epoch, telling)
            keys += [parsed(each).public_key for each in announced.values()]
            shares.append(group["fog-1"].shares([3] * 200))
        assert len(set(keys)) == len(keys) == 14
        assert len(set(chain(*shares))) >= 800 - 1
        between = [(b - a) % 2**32 for a, b in zip(shares[1], shares[3], strict=True)]
        assert len(set(between)) >= 200 - 1

    asyncio.run(go())


def test_who_is_no_member_has_no_share(group):
    async def go():
        await open_epoch(group, 0)
        await open_epoch(group, 1, WITHOUT_SECOND)
        with pytest.raises(InfrastructureError, match="fog-2 was asked for its share of a total"):
            group["fog-2"].shares([1])

    asyncio.run(go())


@pytest.mark.parametrize("epoch", [0, 3])
def test_no_epoch_begins_twice(group, epoch):
    """A clock that let one recur could have one observation answered with two values."""
    for name in NAMES:
        group[name].sit_out(3)
    with pytest.raises(MisbehaviourError, match=f"the clock opened epoch {epoch} of the total"):
        group["fog-1"].open(epoch)


@pytest.mark.parametrize("telling", [(0,), ()])
def test_an_epoch_that_hides_no_count_is_refused(group, telling):
    with pytest.raises(InputError, match="at least 3 members, with the Cloud"):
        group["fog-1" if telling else "cloud"].open(1, telling)


# --- announcements of another epoch --------------------------------------------------------------


def test_an_announcement_that_is_early_is_kept(group):
    async def go():
        await open_epoch(group, 0)
        late = group["fog-1"]
        for name in ("fog-3", "cloud"):
            assert group[name].open(1, WITHOUT_SECOND)
            late.receive(name, group[name].announcement())
        assert late.open(1, WITHOUT_SECOND)
        await late.agree(patience=0)
        for name, other in (("fog-3", "cloud"), ("cloud", "fog-3")):
            group[name].receive("fog-1", late.announcement())
            group[name].receive(other, group[other].announcement())
            await group[name].agree(patience=0)
        assert sums([late, group["fog-3"], group["cloud"]], [2]) == [6]

    asyncio.run(go())


def test_a_stale_announcement_is_refused(group, caplog):
    async def go():
        first = await open_epoch(group, 0)
        provider = group["fog-1"]
        assert provider.open(1)
        for name in NAMES[1:]:
            provider.receive(name, first[name])
        with pytest.raises(InputError, match="fog-2 was refused: it is for epoch 0, and this is"):
            await provider.agree(patience=0)

    with caplog.at_level(logging.WARNING):
        asyncio.run(go())
    assert "the key of cloud was refused: it is for epoch 0, and this is epoch 1" in caplog.text


def forged(announcement, key, **fields):
    """Return an announcement with other contents, signed with some key."""
    message = parsed(announcement)
    for name, value in fields.items():
        setattr(message, name, value)
    message.signature = key.sign(signed_part(message), SIGNED_WITH)
    return message.SerializeToString()


def test_a_forged_announcement_takes_nobodys_place(group, mint, tmp_path):
    """Neither of the epoch that comes, nor of one so far ahead that it would hide those before."""

    def key_of(folder, mint):
        credentials = mint.issue(GROUP.identity("fog-2"), tmp_path / folder)
        return SigningCredentials.read(credentials)

    own, foreign = key_of("own", mint), key_of("foreign", Mint("run"))

    async def go():
        first = await open_epoch(group, 0)
        provider = group["fog-1"]
        for epoch in (1, 2**32 - 1):
            for fields in (
                {"public_key": bytes(range(32))},
                {"public_key": bytes(range(32)), "certificate": foreign.certificate},
            ):
                bad = forged(first["fog-2"], foreign.key, epoch=epoch, **fields)
                provider.receive("fog-2", bad)
            other_run = forged(
                first["fog-2"], own.key, epoch=epoch, run="other", certificate=own.certificate
            )
            provider.receive("fog-2", other_run)
            provider.receive("fog-9", first["fog-2"])
        await open_epoch(group, 1)
        assert sums(group.values(), [2]) == [8]

    asyncio.run(go())


def test_an_old_announcement_does_not_replace_a_later_one(total, group):
    """A relay may repeat what a member has signed."""

    async def go():
        announced = [await open_epoch(group, epoch) for epoch in (4, 5, 6)]
        provider = total("fog-1")
        provider.sit_out(3)
        for epoch in (1, 2, 0):
            for name in NAMES[1:]:
                provider.receive(name, announced[epoch][name])
        assert provider.open(6)
        await provider.agree(patience=0)
        group["fog-1"] = provider
        assert provider.open(7)
        with pytest.raises(LostError, match="waited 0 s for the key of fog-2, fog-3, cloud"):
            await provider.agree(patience=0)

    asyncio.run(go())


def test_a_provider_back_from_a_crash_is_not_confused_by_retained_keys(total, group):
    """Its own old key, too, is delivered to it; those of the present epoch it cannot use."""

    async def go():
        retained = await open_epoch(group, 0)
        retained |= await open_epoch(group, 1, WITHOUT_SECOND)
        group["fog-2"] = total("fog-2")
        for name, announcement in retained.items():
            group["fog-2"].receive(name, announcement)
        group["fog-2"].sit_out(1)  # its clock says that it repeats orders
        await open_epoch(group, 2)
        assert sums(group.values(), [4, 1]) == [16, 4]

    asyncio.run(go())


def test_a_member_that_does_not_announce_a_new_key_is_named(group):
    async def go():
        await open_epoch(group, 0)
        for name in NAMES:
            assert group[name].open(1)
        for name in ("fog-3", "cloud"):
            group["fog-1"].receive(name, group[name].announcement())
        with pytest.raises(LostError, match="for the key of fog-2") as caught:
            await group["fog-1"].agree(patience=0)
        assert caught.value.who == "fog-2"

    asyncio.run(go())


# --- what the agent notices ----------------------------------------------------------------------


@pytest.mark.parametrize("back", [False, True])
def test_shares_of_two_epochs_do_not_add_up(group, back):
    """Nobody learns from a sum in which one masks as in an epoch that is over."""

    async def go():
        await open_epoch(group, 0)
        if back:
            await open_epoch(group, 1, WITHOUT_SECOND)
        old = group["fog-1"]._masks
        await open_epoch(group, 2, None if back else WITHOUT_SECOND)
        group["fog-1"]._masks = old
        members = [group[name] for name in NAMES if back or name != "fog-2"]
        rows = zip(*(member.shares([0] * 20) for member in members), strict=True)
        share_sum = ShareSum()
        noticed = 0
        for row in rows:
            with pytest.raises(InfrastructureError, match="a provider sent a wrong share"):
                share_sum.totals([row])
            noticed += 1
        assert noticed == 20

    asyncio.run(go())


def test_members_that_disagree_about_the_epoch_do_not_go_on(total):
    """A clock that tells one of them another membership gets no share."""

    async def go():
        one, other = total("fog-1"), total("fog-3")
        assert one.open(1, WITHOUT_SECOND)
        assert other.open(1)
        one.receive("fog-3", other.announcement())
        with pytest.raises(InputError, match="fog-3 was refused: its list of members differs"):
            await one.agree(patience=0)

    asyncio.run(go())


# --- scenarios -----------------------------------------------------------------------------------


CRASH = {"at": 500.0, "kind": "crash", "node": "fog-1", "back": 700.0}
OTHER = {"at": 600.0, "kind": "crash", "node": "fog-2", "back": 650.0}
GONE = {"at": 550.0, "kind": "leave", "node": "fog-2", "gone": 690.0}
ABSENT = {"at": 510.0, "kind": "join", "node": "fog-3"}


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([{**CRASH, "jobs": "lost", "notice": 5.0}], "at level total jobs cannot be lost"),
        ([CRASH, OTHER], "from 600 on only 2 providers add up to the total"),
        ([CRASH, GONE], "from 690 on only 2 providers add up to the total"),
        ([CRASH, ABSENT], "from 500 on only 2 providers add up to the total"),
    ],
)
def test_a_scenario_that_would_show_a_count_is_refused(events, sentence):
    with pytest.raises(InputError, match=sentence):
        make_world(disclosure="total", events=events)
    make_world(disclosure="count", events=events)


def test_a_leaver_that_stays_a_member_is_no_reason_to_refuse():
    events = [CRASH, {"at": 550.0, "kind": "leave", "node": "fog-2"}]
    assert make_world(disclosure="total", events=events).members
