"""What level `total` costs compared with plain counts: per share, per observation, per run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.training_state import TrainingState
from fogveil.agent.share_sum import MODULUS, ShareSum
from fogveil.provider_node.masking import Masks
from fogveil.provider_node.membership import Membership, SigningCredentials, TotalGroup
from fogveil.testbed.launch.certificates import Mint
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import World, build_world
from fogveil.v1.boundary_pb2 import WatchResponse
from fogveil.v1.total_pb2 import TotalServiceWatchResponse

STRESS = Path(__file__).parent.parent / "scenarios" / "stress.toml"
OBSERVATIONS = 100_000
WINDOW = 64
REPEATS = 3


def microseconds(work: Callable[[], Any], times: int) -> float:
    """Return the CPU time of one of `times` repetitions in `work`, the best of a few calls."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        best = min(best, (time.process_time() - begin) / times * 1e6)
    return best


def group_of(members: int) -> list[Masks]:
    """Return the masks of a group."""
    private = {f"member {number}": X25519PrivateKey.generate() for number in range(members)}
    public = {name: key.public_key().public_bytes_raw() for name, key in private.items()}
    return [Masks(key, name, public, "run", 0) for name, key in private.items()]


def providers(members: int) -> tuple[float, float, float]:
    """Return the cost of a plain count, of a share, and of an episode's first share."""
    masks, *_ = group_of(members)
    episode = 0
    counts = [number % 7 for number in range(OBSERVATIONS)]

    def plain() -> list[int]:
        sent: list[int] = []
        for count in counts:
            sent.append(count)  # noqa: PERF402 (what a provider does at each observation)
        return sent

    def masked() -> list[int]:
        nonlocal episode
        episode += 1
        return [masks.share(episode, index, count) for index, count in enumerate(counts)]

    def begin() -> None:
        nonlocal episode
        for _ in range(200):
            episode += 1
            masks.share(episode, 0, 0)

    costs = microseconds(plain, OBSERVATIONS), microseconds(masked, OBSERVATIONS)
    return *costs, microseconds(begin, 200)


def agreeing(members: int) -> float:
    """Return the milliseconds in which one member checks all announcements and derives its keys."""
    names = tuple(f"fog {number}" for number in range(1, members))
    group = TotalGroup("run", (*names, "cloud"), "cloud")
    mint = Mint("run")
    with tempfile.TemporaryDirectory() as folder:
        memberships = [
            Membership(
                group, name, SigningCredentials.read(mint.issue(group.identity(name), Path(folder)))
            )
            for name in group.members
        ]
    announced = {
        name: membership.announcement()
        for name, membership in zip(group.members, memberships, strict=True)
    }
    first, now = memberships[0], datetime.now(UTC)

    def agree() -> None:
        for name in group.members[1:]:
            first.admit(name, announced[name], now)
        first.masks()

    return microseconds(agree, 1) / 1000


def adding(members: int) -> tuple[float, float]:
    """Return the agent's cost per observation: adding counts, adding shares."""
    row = tuple(range(members))
    rows = [(0,) * (members - 1) + (MODULUS,)] * (OBSERVATIONS // 10)
    plain = microseconds(lambda: [sum(row) for _ in rows], len(rows))
    return plain, microseconds(lambda: ShareSum().totals(rows), len(rows))


def wire(counts: list[int]) -> tuple[float, float]:
    """Return bytes per observation and provider: counts, shares."""
    shares = [MODULUS - 1] * len(counts)
    plain = len(WatchResponse(counts=counts).SerializeToString())
    masked = len(TotalServiceWatchResponse(shares=shares).SerializeToString())
    return plain / len(counts), masked / len(counts)


def decisions_per_second(world: World, policy: str, window: int) -> float:
    """Return the rate of a federated testbed once all participants have joined."""
    progress: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(policies=(policy,), window=window)
        with create_testbed(world, plan, Path(folder)) as testbed:
            for _, report in testbed.reports():
                if "clock" in report:
                    progress.append((time.perf_counter(), report["clock"]["decisions"]))
    (begin, first), (end, last) = progress[0], progress[-1]
    return (last - first) / (end - begin)


def federated(horizons: dict[int, float]) -> None:
    """Print the decisions per second of the paper's agent, alternating counts and totals."""
    print("\nfederated, stress.toml (10 Fog providers, the Cloud), the paper's agent untrained")
    print(f"{'':14}{'count':>12}{'total':>12}   decisions/s, alternately, the best of {REPEATS}")
    for window, horizon in horizons.items():
        worlds = {
            level: build_world(load_scenario(STRESS, {"horizon": horizon, "disclosure": level}))
            for level in ("count", "total")
        }
        with tempfile.TemporaryDirectory() as folder:
            parl = TrainingState(worlds["total"].agent, "parl", Hyperparameters(), Path(folder))
            policy = str(parl.save_agent())
            best = dict.fromkeys(worlds, 0.0)
            for _ in range(REPEATS):
                for level, world in worlds.items():
                    best[level] = max(best[level], decisions_per_second(world, policy, window))
        name = "lockstep" if window == 1 else "pipelined"
        print(f"{name:14}{best['count']:>12,.0f}{best['total']:>12,.0f}")


def main() -> None:
    """Print the costs of the parts, then those of whole runs."""
    print("level total compared with plain counts (CPU time)")
    print(
        f"{'members':10}{'count':>10}{'share':>10}{'first of an episode':>22}"
        f"{'adding counts':>16}{'adding shares':>16}{'agreeing, once':>17}"
    )
    for members in (11, 50):
        count, share, first = providers(members)
        plain, masked = adding(members)
        print(
            f"{members:<10}{count:>7.2f} µs{share:>7.2f} µs{first:>19.0f} µs"
            f"{plain:>13.2f} µs{masked:>13.2f} µs{agreeing(members):>14.1f} ms"
        )
    plain, masked = wire([3] * WINDOW)
    print(f"bytes per observation and provider: {plain:.1f} as a count, {masked:.1f} as a share")
    federated({0: 60_000.0, 1: 6_000.0})


if __name__ == "__main__":
    main()
