"""Finding a twin of a run: other secrets under which every decision sees the same.

The placements of a run stand as long as the counts do, so each Fog provider can be examined alone.
Where jobs are served first come first served, no count falls when a provider becomes slower. So the
speeds that leave its counts unchanged are an interval, whose ends bisection finds. Where they are
served in another order the result is checked like any other, and may be smaller than possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from math import exp, log, sqrt
from operator import ge, le
from random import Random
from statistics import median

import numpy as np

from fogveil.core.disclosure import Level
from fogveil.provider_node.provider import ProviderConfig
from fogveil.testbed.privacy.audit.twins.replay import Placed, Replay, permitted
from fogveil.testbed.scenario.models import Scenario
from fogveil.testbed.scenario.world import World, build_world

LARGEST_FACTOR = 8.0
"""Change of a speed that nothing else bounds."""
BISECTIONS = 40
"""So the end of an interval is found to a relative 10^-11."""
DRAWS = 64
"""Choices between the ends of the providers' intervals that are compared."""
TILTS = (*(log(2.0) * 0.7**step for step in range(16)), 0.0)
"""Changes of the categories' instructions relative to each other that are tried, as logarithms."""
SHARES = tuple(0.5**step for step in range(12))
"""Parts of the change of speeds that are tried, where the Cloud's count takes part."""
SCALES = 1 / 16, 1 / 4, 4.0, 16.0
"""Common factors of all speeds and instructions. Powers of two leave service times to the bit."""
RAM_RANGE = 10**9, 2 * 10**9

Interval = tuple[float, float]


@dataclass(frozen=True)
class Difference:
    """How different the secrets of two worlds are."""

    speeds: tuple[float, ...]
    """The factor, at least 1, between the speeds of each provider, the Cloud's last."""
    services: tuple[float, ...]
    """The factor, at least 1, between the service times of each: that of the category with most."""
    reordered: int
    """Pairs of Fog providers of which the other one is the faster."""

    @classmethod
    def between(cls, one: World, other: World) -> Difference:
        """Compare two worlds of the same providers."""
        pairs = list(
            zip((*one.fogs, one.cloud_provider), (*other.fogs, other.cloud_provider), strict=True)
        )
        fogs = [(a.ipt, b.ipt) for a, b in pairs[:-1]]
        return cls(
            tuple(_factor(a.ipt, b.ipt) for a, b in pairs),
            tuple(max(map(_factor, _services(a), _services(b))) for a, b in pairs),
            sum((a - c) * (b - d) < 0 for a, b in fogs for c, d in fogs) // 2,
        )

    def __str__(self) -> str:
        return (
            f"speeds by a factor of {min(self.speeds):.3g} to {max(self.speeds):.3g}, service "
            f"times by {min(self.services):.3g} to {max(self.services):.3g} (median "
            f"{median(self.services):.3g}); {self.reordered} pairs of providers change their order"
        )


def find_twin(
    world: World, decisions: Sequence[Placed], *, watches_cloud: bool, seed: int
) -> World | None:
    """Return a world with other secrets in which these decisions see the same; None without one."""
    random = Random(seed)  # noqa: S311 (not a key)
    level, replay = world.agent.disclosed, Replay(world, decisions)
    truth = replay.all(world)
    target = permitted(truth, level, watches_cloud=watches_cloud)
    direction = _direction(world, random)
    columns = [None if level is Level.NONE else column for column in truth.T.tolist()]
    if not (watches_cloud or level is Level.TOTAL):
        columns[-1] = None
    for tilt in TILTS:
        work = [
            part * exp(tilt * sign)
            for part, sign in zip(world.cloud_provider.instructions, direction, strict=True)
        ]
        fogs = [replace(fog, instructions=tuple(work)) for fog in world.fogs]
        cloud = replace(world.cloud_provider, instructions=tuple(work))
        found = (
            _admissible(fog, partial(replay.fog, number), columns[number])
            for number, fog in enumerate(fogs)
        )
        intervals = list(takewhile(bool, found))  # not the others' after one without any
        if len(intervals) < len(fogs):
            continue
        for share in SHARES:
            new = _choose(fogs, [i for i in intervals if i], share, random)
            forwarded = replay.forwarded(list(map(_with_speed, fogs, new)))
            last = _admissible(cloud, partial(replay.cloud, forwarded), columns[-1])
            if last is None:
                continue
            new += _choose([cloud], [last], 1.0, random)
            old = [config.ipt for config in (*fogs, cloud)]
            scale = 1.0 if world.demands else _best_scale(old, new)
            speeds, scaled = ([number * scale for number in numbers] for numbers in (new, work))
            twin = build_world(_with_secrets(world.scenario, speeds, scaled, random))
            seen = permitted(replay.all(twin), level, watches_cloud=watches_cloud)
            if np.array_equal(seen, target):
                return twin
    return None


def _direction(world: World, random: Random) -> list[float]:
    """Return in which direction each category's instructions change, if they can."""
    categories = len(world.categories)
    if world.demands or categories == 1:  # the agent is told demands relative to instructions
        return [0.0] * categories
    signs = [1.0 if place % 2 else -1.0 for place in range(categories)]
    random.shuffle(signs)
    return signs


def _admissible(
    config: ProviderConfig,
    counts_with: Callable[[ProviderConfig], list[int]],
    counts: list[int] | None,
) -> Interval | None:
    """Return the slowest and the fastest speed with these counts; None if there is none.

    Without counts nobody sees the provider's, and any speed will do.
    """
    slowest, fastest = config.ipt / LARGEST_FACTOR, config.ipt * LARGEST_FACTOR
    if counts is None:
        return slowest, fastest

    def compared(compare: Callable[[int, int], bool], speed: float) -> bool:
        return all(map(compare, counts_with(_with_speed(config, speed)), counts))

    low = _last(fastest, slowest, partial(compared, le))
    high = _last(slowest, fastest, partial(compared, ge))
    return None if low is None or high is None or low > high else (low, high)


def _last(inside: float, beyond: float, holds: Callable[[float], bool]) -> float | None:
    """Return the last number on the way from `inside` to `beyond` at which something holds."""
    if holds(beyond):
        return beyond
    if not holds(inside):
        return None
    for _ in range(BISECTIONS):
        middle = sqrt(inside * beyond)
        inside, beyond = (middle, beyond) if holds(middle) else (inside, middle)
    return inside


def _choose(
    fogs: Sequence[ProviderConfig], intervals: Sequence[Interval], share: float, random: Random
) -> list[float]:
    """Choose an end for each provider: so that many change places, and then for a large change."""
    old = [fog.ipt for fog in fogs]

    def towards(end: float, speed: float, interval: Interval) -> float:
        nearest = min(max(speed, interval[0]), interval[1])
        return end if share == 1 else nearest * (end / nearest) ** share

    def draws() -> Iterator[list[float]]:
        for _ in range(DRAWS):
            yield [
                towards(random.choice(i), speed, i) for speed, i in zip(old, intervals, strict=True)
            ]

    def score(new: list[float]) -> tuple[int, float]:
        pairs = list(zip(old, new, strict=True))
        swapped = sum((a - c) * (b - d) < 0 for a, b in pairs for c, d in pairs)
        return swapped, sum(log(_factor(a, b)) for a, b in pairs)

    return max(draws(), key=score)


def _best_scale(old: Sequence[float], new: Sequence[float]) -> float:
    """Return the scale with which the least change of a speed is largest."""
    return max(SCALES, key=lambda s: min(_factor(a, b * s) for a, b in zip(old, new, strict=True)))


def _with_secrets(
    scenario: Scenario, speeds: list[float], work: list[float], random: Random
) -> Scenario:
    """Return the scenario with other speeds, the Cloud's last, instructions and memories."""
    *speeds, cloud = speeds
    fog = {"ipt": speeds, "ram": [_ram(random) for _ in speeds], "assignment": "centrality"}
    applications = [
        application.model_copy(update={"instructions": instructions})
        for application, instructions in zip(scenario.applications, work, strict=True)
    ]
    return scenario.model_copy(
        update={
            "fog": scenario.fog.model_copy(update=fog),
            "cloud": scenario.cloud.model_copy(update={"ipt": cloud, "ram": _ram(random)}),
            "applications": applications,
        }
    )


def _with_speed(config: ProviderConfig, speed: float) -> ProviderConfig:
    return replace(config, ipt=speed)


def _ram(random: Random) -> float:
    return float(random.randrange(*RAM_RANGE))


def _services(config: ProviderConfig) -> list[float]:
    return [work / config.ipt for work in config.instructions]


def _factor(one: float, other: float) -> float:
    return max(one / other, other / one)
