"""The agent's side of level `total`: masked shares in, the sum of all counts out."""

from __future__ import annotations

from collections.abc import Iterable

from fogveil.core.errors import InfrastructureError

MODULUS = 2**32


class ShareSum:
    """Adds the shares of one episode, observation after observation."""

    def __init__(self) -> None:
        self._observations = 0

    def totals(self, rows: Iterable[tuple[int, ...]]) -> list[int]:
        """Return the totals of the next observations; a row holds one share per member.

        A sum above the number of jobs placed so far, one per earlier decision, shows that the
        members' masks do not cancel: it is refused rather than learned from.
        """
        totals = []
        for shares in rows:
            total = sum(shares) % MODULUS
            if total > self._observations:
                raise InfrastructureError(
                    f"the shares of observation {self._observations} add up to {total} queued "
                    f"jobs, of {self._observations} that were placed: a provider sent a wrong share"
                )
            self._observations += 1
            totals.append(total)
        return totals
