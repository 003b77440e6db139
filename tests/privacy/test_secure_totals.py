"""Level `total`: the sum is exact, and of a single count nothing can be seen.

Keys are fixed, so every statistical test here gives the same p-value each time it is run.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import provider_node.masking as masking
from agent.adding import Adding
from fogveil.errors import SurroundingsError
from provider_node.masking import BLOCK, MODULUS, Masks

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


# --- what the agent makes of them ----------------------------------------------------------------


def test_the_agent_gets_the_sum():
    rows = [(0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 1)]
    told = shares_of(group_of(), rows)
    adding = Adding()
    assert adding.totals(map(tuple, told[:2].tolist())) == [0, 1]
    assert adding.totals(map(tuple, told[2:].tolist())) == [2]


def test_the_agent_does_not_learn_from_shares_that_do_not_belong_together():
    """No more jobs can be queued than were placed, so keys that differ are found out."""
    group = [group_of(seed=1)[0], *group_of()[1:]]
    told = shares_of(group, [(0, 0, 0, 0)])
    with pytest.raises(SurroundingsError, match="the shares of observation 0 add up to"):
        Adding().totals(map(tuple, told.tolist()))
