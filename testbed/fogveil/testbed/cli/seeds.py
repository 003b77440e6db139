"""The seed of a run: the one that was given, else the scenario's, or where secrets matter a draw.

Whoever knows a scenario's seed knows all chance events of its providers. A participant receives a
seed that is derived from it one-way; from that a policy finds a small one by trying all.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fogveil.core.errors import InfrastructureError
from fogveil.testbed.cli.options import err, print_line

SEED_BITS = 128
SMALL = 2**64
"""Seeds below can be found by trying, at least by somebody with many machines."""


def with_seed(
    overrides: dict[str, Any], *, federated: bool, earlier: int | None = None
) -> dict[str, Any]:
    """Return a scenario's overrides with the seed of a run.

    A federated run without a given seed has that of an earlier part of it, or 128 random bits.
    """
    if not federated:
        return overrides
    if "seed" not in overrides:
        seed = secrets.randbits(SEED_BITS) if earlier is None else earlier
        return {**overrides, "seed": seed}
    given = overrides["seed"]
    if isinstance(given, int) and abs(given) < SMALL:
        print_line(
            f"--seed {given}: a policy can find such a small seed by trying, and with it all "
            "chance events. Leave --seed out, and repeat a run with --repeat RUN.",
            err,
        )
    return overrides


@contextmanager
def noting_seed(overrides: dict[str, Any], seed: int) -> Iterator[None]:
    """Print the seed that was drawn for a run that fails, before its error: no record has it."""
    try:
        yield
    except InfrastructureError:
        if "seed" not in overrides:
            print_line(f"the seed was drawn; to try this run again: --seed {seed}", err)
        raise
