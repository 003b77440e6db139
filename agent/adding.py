"""Adding up the shares of level `total`: what comes out is the sum of all counts."""

from __future__ import annotations

from collections.abc import Iterable

from fogveil.errors import SurroundingsError

MODULUS = 2**32


class Adding:
    """The totals of one episode, observation after observation."""

    def __init__(self) -> None:
        self._observed = 0

    def totals(self, rows: Iterable[tuple[int, ...]]) -> list[int]:
        """Add up the shares of the next observations, one of each member a row.

        No more jobs can be queued than were placed, one at each decision before. So members who
        hide their counts by different keys are found out, and not learned from.
        """
        totals = []
        for shares in rows:
            total = sum(shares) % MODULUS
            if total > self._observed:
                raise SurroundingsError(
                    f"the shares of observation {self._observed} add up to {total} queued jobs, "
                    f"of {self._observed} that were placed: a provider does not send its share"
                )
            self._observed += 1
            totals.append(total)
        return totals
