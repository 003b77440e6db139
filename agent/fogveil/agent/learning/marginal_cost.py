"""The marginal cost of a decision: the delay of its own job and the delay it caused to others.

A job makes each job behind it start later by its service time at most, and by no more than that
job waits: had it not been there, the next would have started earlier by min(service, wait), the
one after by no more than that, and so on until one does not wait. So the cost of a decision
follows from starts and finishes alone, once the jobs behind it have been served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fogveil.agent.inference.node_belief import Finished


class _Unsettled:
    """A job whose cost to others is not complete yet."""

    __slots__ = ("behind", "cost", "job", "push")

    def __init__(self, job: int, finish: float, push: float) -> None:
        self.job, self.cost, self.push, self.behind = job, finish, push, 0


class MarginalDelay:
    """Computes from one node's finished jobs what each of them cost.

    Three jobs of four time units each arrive at 0, 1 and 2: the first delays the two others.

    >>> node = MarginalDelay(reach=40)
    >>> jobs = [(7, 0, 0, 4), (8, 1, 4, 8), (9, 2, 8, 12), (10, 20, 20, 24)]
    >>> list(node.settle(Finished(*job) for job in jobs))
    [(7, 10.0), (8, 12.0), (9, 12.0)]
    >>> list(MarginalDelay(reach=0).settle([Finished(7, 0, 0, 4)]))
    [(7, 4.0)]
    """

    def __init__(self, reach: int) -> None:
        self._reach = reach
        """Jobs behind a job; the delay it causes beyond them is neglected."""
        self._unsettled: list[_Unsettled] = []

    def forget(self, job: int) -> None:
        """Drop a job that was lost: it has no cost."""
        self._unsettled = [other for other in self._unsettled if other.job != job]

    def settle(self, finished: Iterable[Finished]) -> Iterator[tuple[int, float]]:
        """Yield (job, its finish + all delay it caused to others) where that is complete."""
        for job, arrival, started, finish in finished:
            waited = max(started - arrival, 0.0)
            unsettled = []
            for other in self._unsettled:
                other.push = min(other.push, waited)
                other.cost += other.push
                other.behind += 1
                if other.push > 0 and other.behind < self._reach:
                    unsettled.append(other)
                else:
                    yield other.job, other.cost
            if self._reach:
                unsettled.append(_Unsettled(job, float(finish), finish - started))
            else:
                yield job, float(finish)
            self._unsettled = unsettled
