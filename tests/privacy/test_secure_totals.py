"""Level `total`: the sum is exact, and of a single count nothing can be seen.

Keys are fixed, so every statistical test here gives the same p-value each time it is run.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import provider_node.masking as masking
from fogveil.errors import InputError, SurroundingsError
from fogveil.identity import Identity
from provider_node.masking import BLOCK, MODULUS, Masks
from provider_node.membership import (
    SIGNED_WITH,
    Group,
    Membership,
    Papers,
    RefusedError,
    signed_part,
)
from testbed.federated.identities import Mint

NAMES = ("fog-1", "fog-2", "fog-3", "cloud")
MANY = 40 * BLOCK
UNLIKELY = 1e-3
"""A test that rejects at this level, with fixed keys, would have to be looked into."""
IMPOSSIBLE = 1e-12


def key_of(name, seed=0):
    return X25519PrivateKey.from_private_bytes(sha256(f"{seed} {name}".encode()).digest())


def group_of(names=NAMES, run="run", epoch=0, seed=0):
    """The masks of all members."""
    own = {name: key_of(name, seed) for name in names}
    keys = {name: key.public_key().public_bytes_raw() for name, key in own.items()}
    return [Masks(own[name], name, keys, run, epoch) for name in names]


def shares_of(group, rows, episode=0):
    """What the agent is told, as [observation, member]."""
    told = [
        [masks.share(episode, index, count) for masks, count in zip(group, row, strict=True)]
        for index, row in enumerate(rows)
    ]
    return np.array(told, np.uint64)


def masks_of(number=4 * BLOCK, episode=0, **how):
    """The numbers that the first member's counts are hidden by."""
    first, *_ = group_of(**how)
    return np.array([first.share(episode, index, 0) for index in range(number)], np.uint64)


def bytes_of(numbers):
    return [(numbers >> shift) % 256 for shift in (0, 8, 16, 24)]


def chance(numbers, cells=256):
    """The p-value of small numbers being uniform."""
    return stats.chisquare(np.bincount(numbers.astype(np.int64), minlength=cells)).pvalue


def chance_together(one, other, cells=16):
    """The p-value of two columns of small numbers having nothing to do with each other."""
    table = np.zeros((cells, cells), np.int64)
    np.add.at(table, (one.astype(np.int64), other.astype(np.int64)), 1)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    return stats.chi2_contingency(table).pvalue


def chance_alike(one, other, cells=256):
    """The p-value of two samples of small numbers coming from one distribution."""
    table = [np.bincount(sample.astype(np.int64), minlength=cells) for sample in (one, other)]
    return stats.chi2_contingency(np.array(table)).pvalue


# --- the sum ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(3, 6).flatmap(
        lambda members: st.lists(
            st.lists(
                st.one_of(st.integers(0, 40), st.integers(0, MODULUS - 1), st.just(MODULUS - 1)),
                min_size=members,
                max_size=members,
            ),
            min_size=1,
            max_size=20,
        )
    ),
    episode=st.integers(0, 2**32 - 1),
)
def test_the_masks_cancel(rows, episode):
    told = shares_of(group_of([f"m{number}" for number in range(len(rows[0]))]), rows, episode)
    assert (told.sum(axis=1) % MODULUS).tolist() == [sum(row) % MODULUS for row in rows]


def test_the_masks_cancel_beyond_one_block_and_in_every_episode():
    group = group_of()
    for episode in (0, 1, 7):
        told = shares_of(group, [(3, 0, 5, 1)] * (2 * BLOCK + 3), episode)
        assert set((told.sum(axis=1) % MODULUS).tolist()) == {9}


def test_members_of_another_opinion_add_up_to_nonsense():
    """Rather than to something that looks like a total."""
    others = {"run": "other"}, {"epoch": 1}, {"seed": 1}, {"names": (*NAMES, "fog-4")}
    for other in others:
        group = [group_of(**other)[0], *group_of()[1:]]
        told = shares_of(group, [(0, 0, 0, 0)] * 100).sum(axis=1) % MODULUS
        assert np.median(np.minimum(told, MODULUS - told)) > 2**24


# --- one share ---------------------------------------------------------------------------------


@pytest.mark.parametrize("member", range(4))
def test_a_single_share_is_uniform(member):
    told = shares_of(group_of(), [(0, 0, 0, 0)] * MANY)[:, member]
    for byte in bytes_of(told):
        assert chance(byte) > UNLIKELY
    for byte in bytes_of((told[1:] - told[:-1]) % MODULUS):
        assert chance(byte) > UNLIKELY
    assert chance_together(told[1:] % 16, told[:-1] % 16) > UNLIKELY


def test_the_test_of_uniformity_sees_a_bare_count():
    counts = np.random.default_rng(1).poisson(3.0, MANY).astype(np.uint64)
    assert chance(counts % 256) < IMPOSSIBLE
    stuck = (counts + np.uint64(0x9E3779B9)) % MODULUS  # one mask for all observations
    assert chance(stuck % 256) < IMPOSSIBLE


def test_a_share_tells_nothing_of_its_count():
    """Whatever the count does, the share is distributed alike and has nothing to do with it."""
    random = np.random.default_rng(2)
    counts = random.integers(0, 16, MANY)
    rows = [(int(count), 0, 0, 0) for count in counts]
    told = shares_of(group_of(seed=1), rows)[:, 0]
    for byte in bytes_of(told):
        assert chance(byte) > UNLIKELY
        assert chance_together(byte % 16, counts) > UNLIKELY
        assert chance_together(byte // 16, counts) > UNLIKELY
    for other in (0, 1, 15, 1000, MODULUS - 1):
        steady = shares_of(group_of(seed=2), [(other, 0, 0, 0)] * MANY)[:, 0]
        for one, two in zip(bytes_of(told), bytes_of(steady), strict=True):
            assert chance_alike(one, two) > UNLIKELY
    assert chance_together((counts * 3) % 16, counts) < IMPOSSIBLE  # it would see it


@pytest.mark.parametrize(
    "changed",
    [
        {"run": "other"},
        {"epoch": 1},
        {"episode": 1},
        {"seed": 1},
        {"names": (*NAMES, "fog-4")},
        {"names": ("fog-1", "fog-3", "fog-2", "cloud")},
    ],
)
def test_masks_are_bound_to_what_they_are_for(changed):
    base, other = masks_of(MANY), masks_of(MANY, **changed)
    assert (base == other).sum() <= 1
    for byte in bytes_of((base - other) % MODULUS):
        assert chance(byte) > UNLIKELY


def test_no_mask_is_used_twice():
    masks = np.concatenate([masks_of(MANY, episode=episode) for episode in range(3)])
    again = len(masks) - len(np.unique(masks))
    expected = len(masks) ** 2 / (2 * MODULUS)
    assert stats.poisson.sf(again - 1, expected) > UNLIKELY


# --- all shares together -----------------------------------------------------------------------


def pattern_of(group, monkeypatch):
    """How often each pair's number is in each share, as [member, pair]."""
    numbers: dict[bytes, int] = {}

    class Marked:
        """Gives the k-th stream the number 16^k."""

        def __init__(self, key, mode):
            self.number = 16 ** numbers.setdefault(key, len(numbers))

        def encryptor(self):
            return self

        def update(self, nothing):
            return np.full(len(nothing) // 4, self.number, "<u4").tobytes()

    monkeypatch.setattr(masking, "ChaCha20", lambda key, start: key)
    monkeypatch.setattr(masking, "Cipher", Marked)
    pattern = []
    for masks in group:
        rest, row = (masks.share(0, 0, 0) + MODULUS // 2) % MODULUS - MODULUS // 2, []
        for _ in range(6):
            row.append((rest + 1) % 16 - 1)
            rest = (rest - row[-1]) // 16
        assert rest == 0
        pattern.append(row)
    assert len(numbers) == 6
    return np.array(pattern)


def test_each_pair_has_a_number_that_one_adds_and_the_other_takes_away(monkeypatch):
    """What is left of the counts is their sum, exactly, if these numbers are uniform.

    In such a pattern any n - 1 shares together are then uniform, whatever the counts, and the last
    one is what is missing to the sum. The same holds among those who are honest when the others
    give their numbers away: two are known by their sum, one is exposed.
    """
    pattern = pattern_of(group_of(), monkeypatch)
    for column in pattern.T.tolist():
        assert sorted(column) == [-1, 0, 0, 1]
    pairs = [tuple(np.flatnonzero(column)) for column in pattern.T]
    assert sorted(pairs) == list(combinations(range(4), 2))
    for honest in (range(4), (0, 1, 3), (1, 2), (3,)):
        between = [pair for pair, ends in enumerate(pairs) if set(ends) <= set(honest)]
        left = pattern[np.ix_(honest, between)]
        assert (np.linalg.matrix_rank(left) if between else 0) == len(honest) - 1


SPLITS = [(9, 0, 0, 0), (0, 9, 0, 0), (2, 3, 4, 0), (0, 0, 0, 9), (1, 1, 1, 6)]


def simulated(total, members, number, seed):
    """The agent's view as somebody makes it up who knows nothing but the total."""
    view = np.random.default_rng(seed).integers(0, MODULUS, (number, members), np.uint64)
    view[:, -1] = (np.uint64(total) - view[:, :-1].sum(axis=1)) % MODULUS
    return view


@pytest.mark.parametrize("split", SPLITS)
def test_what_the_agent_is_told_could_be_made_up_from_the_total(split):
    members, view = len(split), shares_of(group_of(seed=3), [split] * MANY)
    made_up = simulated(sum(split), members, MANY, seed=4)
    assert (view.sum(axis=1) % MODULUS == made_up.sum(axis=1) % MODULUS).all()
    for size in range(1, members):
        for some in combinations(range(members), size):
            real, unreal = (table[:, some].sum(axis=1) % MODULUS for table in (view, made_up))
            for one, other in zip(bytes_of(real), bytes_of(unreal), strict=True):
                assert chance(one) > UNLIKELY / 10  # a good two hundred of these tests in all
                assert chance_alike(one, other) > UNLIKELY / 10
    for one, other in combinations(range(members), 2):
        assert chance_together(view[:, one] >> 28, view[:, other] >> 28) > UNLIKELY
        assert chance_together(view[:, one] % 16, view[:, other] % 16) > UNLIKELY


def test_two_splits_of_one_total_look_alike():
    """Each observation splits the same total in one of two ways: no share says which."""
    which = np.random.default_rng(5).integers(0, 2, MANY)
    view = shares_of(group_of(seed=6), [SPLITS[way] for way in which])
    assert set((view.sum(axis=1) % MODULUS).tolist()) == {9}
    for member in range(4):
        for part in (view[:, member] % 16, view[:, member] >> 28):
            assert chance_together(part, which) > UNLIKELY
    for one, other in combinations(range(4), 2):
        difference = (view[:, one] - view[:, other]) % MODULUS
        assert chance_together(difference % 16, which) > UNLIKELY
    assert chance_together(np.array(SPLITS)[which][:, 0], which) < IMPOSSIBLE  # counts do


# --- what it does not protect from -------------------------------------------------------------


def test_all_others_together_with_the_agent_learn_the_count_that_is_left():
    random = np.random.default_rng(7)
    rows = random.poisson(4.0, (50, 4)).tolist()
    told = shares_of(group_of(), rows)
    # The agent knows the total, the others their own counts: no key is needed.
    totals = told.sum(axis=1) % MODULUS
    left = [int(total) - sum(row[1:]) for total, row in zip(totals, rows, strict=True)]
    assert left == [row[0] for row in rows]


# --- one value for one index -------------------------------------------------------------------


def test_one_observation_is_never_answered_with_two_values():
    masks, *_ = group_of()
    first = [masks.share(0, index, count) for index, count in enumerate((4, 4, 7))]
    assert [masks.share(0, index, count) for index, count in enumerate((4, 4, 7))] == first
    with pytest.raises(SurroundingsError, match="fog-1 was asked again for observation 1 of"):
        masks.share(0, 1, 5)
    assert masks.share(0, 3, 4) not in first


def test_an_episode_that_is_over_is_not_answered():
    masks, *_ = group_of()
    masks.share(0, 0, 4)
    masks.share(1, 0, 4)
    with pytest.raises(SurroundingsError, match="fog-1 was asked about episode 0, which is over"):
        masks.share(0, 0, 4)


def test_observations_come_in_order():
    masks, *_ = group_of()
    with pytest.raises(SurroundingsError, match="observation 2 of episode 0 before observation 0"):
        masks.share(0, 2, 4)


def test_a_count_that_is_none_is_never_told():
    masks, *_ = group_of()
    for count in (-1, MODULUS):
        with pytest.raises(OverflowError):
            masks.share(0, 0, count)


# --- who takes part ----------------------------------------------------------------------------

GROUP = Group("run", NAMES, "cloud")
NOW = datetime.now(UTC)


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
                own.admit(other, their.announcement(), NOW)
                own.admit(other, their.announcement(), NOW)  # a relay may say it twice
        assert own.missing == []
    group = [members[name].masks() for name in NAMES]
    assert sum(masks.share(0, 0, 5) for masks in group) % MODULUS == 20


def test_a_member_never_repeats_its_key(member):
    keys = {member("fog-2").announcement().public_key for _ in range(5)}
    assert len(keys) == 5


def refusal(own, name, told, now=NOW):
    before = own.missing
    with pytest.raises(RefusedError) as caught:
        own.admit(name, told, now)
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
    other = key_of("relay").public_key().public_bytes_raw()
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
    other = {"epoch": 3, "public_key": bytes(range(32)), "membership": NAMES[:3]}
    assert signed_part(told) != signed_part(changed(told, **{field: other.get(field, "other")}))


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
        Identity("other", "provider", "fog-2"),
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
    begin, end = (NOW + timedelta(days=day) for day in days)
    told = member("fog-2", lifetime=(begin, end)).announcement()
    assert "its certificate is valid from" in refusal(member("fog-1"), "fog-2", told)


def test_a_second_key_is_refused(member):
    own = member("fog-1")
    own.admit("fog-2", member("fog-2").announcement(), NOW)
    assert "another one before" in refusal(own, "fog-2", member("fog-2").announcement())


def test_one_key_for_two_members_is_refused(member):
    own, their = member("fog-1"), member("fog-2")
    told = their.announcement()
    own.admit("fog-2", told, NOW)
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
