"""Level `total`: the sum is exact, and the shares reveal nothing of a single count.

Keys are fixed, so every statistical test here gives the same p-value each time.
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

import fogveil.provider_node.masking as masking
from fogveil.agent.share_sum import ShareSum
from fogveil.core.errors import InfrastructureError
from fogveil.provider_node.masking import BLOCK, MODULUS, Masks

NAMES = ("fog-1", "fog-2", "fog-3", "cloud")
MANY = 40 * BLOCK
UNLIKELY = 1e-3
"""With fixed keys, a p-value below this would need an explanation."""
IMPOSSIBLE = 1e-12


def key_of(name, seed=0):
    return X25519PrivateKey.from_private_bytes(sha256(f"{seed} {name}".encode()).digest())


def group_of(names=NAMES, run="run", epoch=0, seed=0):
    """Return the masks of all members."""
    private = {name: key_of(name, seed) for name in names}
    public = {name: key.public_key().public_bytes_raw() for name, key in private.items()}
    return [Masks(private[name], name, public, run, epoch) for name in names]


def shares_of(group, rows, episode=0):
    """Return what the agent receives, as [observation, member]."""
    shares = [
        [masks.share(episode, index, count) for masks, count in zip(group, row, strict=True)]
        for index, row in enumerate(rows)
    ]
    return np.array(shares, np.uint64)


def masks_of(number=4 * BLOCK, episode=0, **binding):
    """Return the numbers that mask the first member's counts."""
    first, *_ = group_of(**binding)
    return np.array([first.share(episode, index, 0) for index in range(number)], np.uint64)


def bytes_of(numbers):
    return [(numbers >> shift) % 256 for shift in (0, 8, 16, 24)]


def p_uniform(numbers, cells=256):
    """Return the p-value of small numbers being uniform."""
    return stats.chisquare(np.bincount(numbers.astype(np.int64), minlength=cells)).pvalue


def p_independent(one, other, cells=16):
    """Return the p-value of two columns of small numbers being independent."""
    table = np.zeros((cells, cells), np.int64)
    np.add.at(table, (one.astype(np.int64), other.astype(np.int64)), 1)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    return stats.chi2_contingency(table).pvalue


def p_same_distribution(one, other, cells=256):
    """Return the p-value of two samples of small numbers having one distribution."""
    table = [np.bincount(sample.astype(np.int64), minlength=cells) for sample in (one, other)]
    return stats.chi2_contingency(np.array(table)).pvalue


# --- the sum ---------------------------------------------------------------------------------


@settings(max_examples=60)
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
    shares = shares_of(group_of([f"m{number}" for number in range(len(rows[0]))]), rows, episode)
    assert (shares.sum(axis=1) % MODULUS).tolist() == [sum(row) % MODULUS for row in rows]


def test_the_masks_cancel_beyond_one_block_and_in_every_episode():
    group = group_of()
    for episode in (0, 1, 7):
        shares = shares_of(group, [(3, 0, 5, 1)] * (2 * BLOCK + 3), episode)
        assert set((shares.sum(axis=1) % MODULUS).tolist()) == {9}


def test_members_that_disagree_add_up_to_noise():
    """And not to a number that looks like a total."""
    others = {"run": "other"}, {"epoch": 1}, {"seed": 1}, {"names": (*NAMES, "fog-4")}
    for other in others:
        group = [group_of(**other)[0], *group_of()[1:]]
        shares = shares_of(group, [(0, 0, 0, 0)] * 100).sum(axis=1) % MODULUS
        assert np.median(np.minimum(shares, MODULUS - shares)) > 2**24


# --- one share ---------------------------------------------------------------------------------


@pytest.mark.parametrize("member", range(4))
def test_a_single_share_is_uniform(member):
    shares = shares_of(group_of(), [(0, 0, 0, 0)] * MANY)[:, member]
    for byte in bytes_of(shares):
        assert p_uniform(byte) > UNLIKELY
    for byte in bytes_of((shares[1:] - shares[:-1]) % MODULUS):
        assert p_uniform(byte) > UNLIKELY
    assert p_independent(shares[1:] % 16, shares[:-1] % 16) > UNLIKELY


def test_the_test_of_uniformity_detects_a_bare_count():
    counts = np.random.default_rng(1).poisson(3.0, MANY).astype(np.uint64)
    assert p_uniform(counts % 256) < IMPOSSIBLE
    same_mask = (counts + np.uint64(0x9E3779B9)) % MODULUS  # for all observations
    assert p_uniform(same_mask % 256) < IMPOSSIBLE


def test_a_share_reveals_nothing_of_its_count():
    """Whatever the count is, the share has the same distribution and is independent of it."""
    random = np.random.default_rng(2)
    counts = random.integers(0, 16, MANY)
    rows = [(int(count), 0, 0, 0) for count in counts]
    shares = shares_of(group_of(seed=1), rows)[:, 0]
    for byte in bytes_of(shares):
        assert p_uniform(byte) > UNLIKELY
        assert p_independent(byte % 16, counts) > UNLIKELY
        assert p_independent(byte // 16, counts) > UNLIKELY
    for other in (0, 1, 15, 1000, MODULUS - 1):
        constant = shares_of(group_of(seed=2), [(other, 0, 0, 0)] * MANY)[:, 0]
        for one, two in zip(bytes_of(shares), bytes_of(constant), strict=True):
            assert p_same_distribution(one, two) > UNLIKELY
    assert p_independent((counts * 3) % 16, counts) < IMPOSSIBLE  # a dependence is detected


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
def test_masks_are_bound_to_run_epoch_episode_keys_and_members(changed):
    base, other = masks_of(MANY), masks_of(MANY, **changed)
    assert (base == other).sum() <= 1
    for byte in bytes_of((base - other) % MODULUS):
        assert p_uniform(byte) > UNLIKELY


@pytest.mark.parametrize(
    ("epoch", "names"), [(0, NAMES), (1, ("fog-1", "fog-3", "cloud")), (2, NAMES)]
)
def test_shares_are_uniform_in_every_epoch(epoch, names):
    """With fresh keys for each; so is the difference to the shares of the epoch before."""
    rows = [(3,) * len(names)] * MANY
    shares = shares_of(group_of(names, epoch=epoch, seed=epoch), rows)[:, 0]
    before = shares_of(group_of(epoch=epoch + 7, seed=epoch + 7), [(3, 3, 3, 3)] * MANY)[:, 0]
    for byte in (*bytes_of(shares), *bytes_of((shares - before) % MODULUS)):
        assert p_uniform(byte) > UNLIKELY


def test_no_mask_is_used_twice():
    masks = np.concatenate([masks_of(MANY, episode=episode) for episode in range(3)])
    repeated = len(masks) - len(np.unique(masks))
    expected = len(masks) ** 2 / (2 * MODULUS)
    assert stats.poisson.sf(repeated - 1, expected) > UNLIKELY


# --- all shares together -----------------------------------------------------------------------


def pattern_of(group, monkeypatch):
    """Return the coefficient of each pair's number in each share, as [member, pair]."""
    numbers: dict[bytes, int] = {}

    class MarkedCipher:
        """The k-th stream consists of the number 16^k."""

        def __init__(self, key, mode):
            self.number = 16 ** numbers.setdefault(key, len(numbers))

        def encryptor(self):
            return self

        def update(self, zeros):
            return np.full(len(zeros) // 4, self.number, "<u4").tobytes()

    monkeypatch.setattr(masking, "ChaCha20", lambda key, start: key)
    monkeypatch.setattr(masking, "Cipher", MarkedCipher)
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


def test_each_pair_has_a_number_that_one_adds_and_the_other_subtracts(monkeypatch):
    """If these numbers are uniform, the shares reveal exactly the sum of the counts.

    With this pattern any n - 1 shares together are uniform, whatever the counts, and the last one
    is the difference to the sum. The same holds for the honest members if the others reveal their
    numbers: of two the sum is known, a single one is exposed.
    """
    pattern = pattern_of(group_of(), monkeypatch)
    for column in pattern.T.tolist():
        assert sorted(column) == [-1, 0, 0, 1]
    pairs = [tuple(np.flatnonzero(column)) for column in pattern.T]
    assert sorted(pairs) == list(combinations(range(4), 2))
    for honest in (range(4), (0, 1, 3), (1, 2), (3,)):
        between = [pair for pair, ends in enumerate(pairs) if set(ends) <= set(honest)]
        remaining = pattern[np.ix_(honest, between)]
        assert (np.linalg.matrix_rank(remaining) if between else 0) == len(honest) - 1


SPLITS = [(9, 0, 0, 0), (0, 9, 0, 0), (2, 3, 4, 0), (0, 0, 0, 9), (1, 1, 1, 6)]


def simulated(total, members, number, seed):
    """Return the agent's view as simulated from the total alone."""
    view = np.random.default_rng(seed).integers(0, MODULUS, (number, members), np.uint64)
    view[:, -1] = (np.uint64(total) - view[:, :-1].sum(axis=1)) % MODULUS
    return view


@pytest.mark.parametrize("split", SPLITS)
def test_the_agents_view_can_be_simulated_from_the_total(split):
    members, view = len(split), shares_of(group_of(seed=3), [split] * MANY)
    simulation = simulated(sum(split), members, MANY, seed=4)
    assert (view.sum(axis=1) % MODULUS == simulation.sum(axis=1) % MODULUS).all()
    for size in range(1, members):
        for some in combinations(range(members), size):
            real, fake = (table[:, some].sum(axis=1) % MODULUS for table in (view, simulation))
            for one, other in zip(bytes_of(real), bytes_of(fake), strict=True):
                assert p_uniform(one) > UNLIKELY / 10  # more than two hundred of these tests
                assert p_same_distribution(one, other) > UNLIKELY / 10
    for one, other in combinations(range(members), 2):
        assert p_independent(view[:, one] >> 28, view[:, other] >> 28) > UNLIKELY
        assert p_independent(view[:, one] % 16, view[:, other] % 16) > UNLIKELY


def test_two_splits_of_one_total_look_alike():
    """Each observation splits the same total in one of two ways: no share reveals which."""
    which = np.random.default_rng(5).integers(0, 2, MANY)
    view = shares_of(group_of(seed=6), [SPLITS[way] for way in which])
    assert set((view.sum(axis=1) % MODULUS).tolist()) == {9}
    for member in range(4):
        for part in (view[:, member] % 16, view[:, member] >> 28):
            assert p_independent(part, which) > UNLIKELY
    for one, other in combinations(range(4), 2):
        difference = (view[:, one] - view[:, other]) % MODULUS
        assert p_independent(difference % 16, which) > UNLIKELY
    assert p_independent(np.array(SPLITS)[which][:, 0], which) < IMPOSSIBLE  # counts do


# --- what is not protected ---------------------------------------------------------------------


def test_the_agent_and_all_other_members_learn_the_remaining_count():
    random = np.random.default_rng(7)
    rows = random.poisson(4.0, (50, 4)).tolist()
    shares = shares_of(group_of(), rows)
    # The agent knows the total, the others their own counts: no key is needed.
    totals = shares.sum(axis=1) % MODULUS
    remaining = [int(total) - sum(row[1:]) for total, row in zip(totals, rows, strict=True)]
    assert remaining == [row[0] for row in rows]


# --- one value for one index -------------------------------------------------------------------


def test_one_observation_is_never_answered_with_two_values():
    masks, *_ = group_of()
    first = [masks.share(0, index, count) for index, count in enumerate((4, 4, 7))]
    assert [masks.share(0, index, count) for index, count in enumerate((4, 4, 7))] == first
    with pytest.raises(InfrastructureError, match="fog-1 was asked again for observation 1 of"):
        masks.share(0, 1, 5)
    assert masks.share(0, 3, 4) not in first


def test_an_earlier_episode_is_not_answered():
    masks, *_ = group_of()
    masks.share(0, 0, 4)
    masks.share(1, 0, 4)
    with pytest.raises(InfrastructureError, match="fog-1 was asked about episode 0, which is over"):
        masks.share(0, 0, 4)


def test_observations_come_in_order():
    masks, *_ = group_of()
    with pytest.raises(
        InfrastructureError, match="observation 2 of episode 0 before observation 0"
    ):
        masks.share(0, 2, 4)


def test_a_count_out_of_range_is_never_sent():
    masks, *_ = group_of()
    for count in (-1, MODULUS):
        with pytest.raises(OverflowError):
            masks.share(0, 0, count)


# --- the agent's sum -----------------------------------------------------------------------------


def test_the_agent_gets_the_sum():
    rows = [(0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 1)]
    shares = shares_of(group_of(), rows)
    share_sum = ShareSum()
    assert share_sum.totals(map(tuple, shares[:2].tolist())) == [0, 1]
    assert share_sum.totals(map(tuple, shares[2:].tolist())) == [2]


def test_the_agent_refuses_shares_under_different_keys():
    """More jobs than were placed cannot be queued, so such a sum is detected."""
    group = [group_of(seed=1)[0], *group_of()[1:]]
    shares = shares_of(group, [(0, 0, 0, 0)])
    with pytest.raises(InfrastructureError, match="the shares of observation 0 add up to"):
        ShareSum().totals(map(tuple, shares.tolist()))
