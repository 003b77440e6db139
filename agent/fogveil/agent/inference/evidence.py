"""How badly guessed service times explain the observations, many guesses at a time.

A node is modelled by what is public: one server, first come, first served. Which jobs it gets, when
and in which order is known, so guessed service times determine when each job starts and finishes.
The evidence is a sum of one part per node, so that a guess can be changed at one node without
computing the others again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fogveil.agent.inference.transcript import Floats, Ints, Transcript
from fogveil.core.disclosure import CountKind

Parts = npt.NDArray[Any]
"""What each guess predicts of one node: [guess, …], to be summed over the nodes."""
ROUNDING = 1e-9
"""A job that starts at the very instant of an observation has started, despite rounded sums."""


class JobLine:
    """The attacker's jobs at one node, in the order in which they are served."""

    def __init__(self, transcript: Transcript, node: int) -> None:
        self.arrivals, self._categories = transcript.arrivals_at(node)
        self._waiting = transcript.view.count is CountKind.WAITING

    def departures(self, service: Floats) -> Floats:
        """Return when each job leaves the count, [guess, job]: its start, or its finish.

        >>> import numpy as np
        >>> line = JobLine.__new__(JobLine)
        >>> line.arrivals, line._categories = np.array([0.0, 1.0, 9.0]), np.array([0, 0, 0])
        >>> line._waiting = False
        >>> line.departures(np.array([[3.0]]))
        array([[ 3.,  6., 12.]])
        """
        times = service[:, self._categories]
        done = np.cumsum(times, axis=1)
        # Lindley's recursion in closed form: the work done so far plus the idle time before.
        finishes = done + np.maximum.accumulate(self.arrivals - (done - times), axis=1)
        departures: Floats = finishes - times if self._waiting else finishes
        return departures


class Evidence(ABC):
    """The observations up to some decision."""

    last_temperature: float
    """The misfit that is no more than chance or rounding: annealing ends at this temperature."""
    last_sweeps: ClassVar[int]
    """Sweeps at that temperature."""
    guesses: int
    """The size of the population."""
    most_guesses: ClassVar[int] = 0
    """Guesses at the beginning; 0 for as many as usual."""
    mixes_nodes: ClassVar[bool]
    """Whether departures of one node can be mistaken for another's."""
    redraws: ClassVar[bool] = False
    """Whether guesses draw a number anew now and then: the right one may be far away."""
    growths: ClassVar[tuple[float, ...]]
    """The factor by which the evidence grows from stage to stage, for each attempt."""

    def __init__(self, transcript: Transcript) -> None:
        self.decisions = len(transcript)
        self.instants = transcript.times
        self.lines = [JobLine(transcript, node) for node in range(len(transcript.view.nodes))]

    @abstractmethod
    def part(self, node: int, service: Floats) -> Parts:
        """Return what guesses of a node's service times, [guess, category], predict of it."""

    @abstractmethod
    def misfit(self, parts: Parts) -> Floats:
        """Return per guess how far the sum of all nodes' parts is from the observations."""

    @abstractmethod
    def explained(self, misfit: float) -> bool:
        """Return whether a misfit is small enough to be chance or rounding."""


class CountEvidence(Evidence):
    """Each node's count: it shows between which two observations each job left the count.

    The misfit is the time by which guessed starts or finishes lie outside of these brackets. It
    is zero for the truth, and for all guesses that cannot be distinguished from it.
    """

    last_sweeps = 20
    guesses = 128
    mixes_nodes = False
    growths = (4.0, 1.5)

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        nodes = range(len(self.lines))
        self._brackets = [self._brackets_of(node, transcript.counts_of(node)) for node in nodes]
        self._gap = float(np.ptp(self.instants)) / self.decisions or 1.0
        self.last_temperature = 1e-3 * self._gap

    def part(self, node: int, service: Floats) -> Parts:
        """Return the time outside of the brackets, [guess]."""
        earliest, latest = self._brackets[node]
        times = self.lines[node].departures(service)
        outside = np.maximum(earliest - times, 0.0) + np.maximum(times - latest, 0.0)
        part: Parts = outside.sum(axis=1)
        return part

    def misfit(self, parts: Parts) -> Floats:
        """Return the time outside of all brackets."""
        return parts

    def explained(self, misfit: float) -> bool:
        """Return whether the misfit is within the mean time between two observations."""
        return misfit <= self._gap

    def _brackets_of(self, node: int, counts: Ints) -> tuple[Floats, Floats]:
        arrivals, instants = self.lines[node].arrivals, self.instants
        departed = np.maximum.accumulate(np.searchsorted(arrivals, instants, side="right") - counts)
        # The j-th job has left by the first observation at which more than j jobs have.
        left_by = np.searchsorted(departed, np.arange(len(arrivals)), side="right")
        before, after = np.append(-np.inf, instants), np.append(instants, np.inf)
        return before[left_by], after[left_by]


class TotalEvidence(Evidence):
    """The sum of all counts. The Cloud's part is unknown to the attacker and treated as noise.

    The misfit is the sum over all observations of |total observed - total predicted|.
    """

    last_temperature = 1.0
    last_sweeps = 6
    mixes_nodes = True
    growths = (1.3, 2.0, 1.3, 2.0, 1.3, 1.3)
    NOISE = 0.15
    """Misfit per observation that the Cloud may cause; a wrong explanation has more."""
    CLOUD = 1.0
    """Weight of a job that the Cloud may have added."""
    FEWEST, MOST, WORK = 128, 500, 60_000
    """Guesses, and guesses times observations: a longer transcript needs fewer guesses."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self.guesses = min(max(self.WORK // self.decisions, self.FEWEST), self.MOST)
        arrived = [
            np.searchsorted(line.arrivals, self.instants, side="right") for line in self.lines
        ]
        self._departed = (np.sum(arrived, axis=0) - transcript.totals).astype(np.int32)
        """Jobs that have left the counts by each instant, if the Cloud added none."""

    def part(self, node: int, service: Floats) -> Parts:
        """Return how many jobs leave the node's count before each instant, [guess, instant]."""
        times = self.lines[node].departures(service)
        guesses, instants = len(times), self.decisions
        slots = np.searchsorted(self.instants, times.ravel() - ROUNDING).reshape(times.shape)
        slots += np.arange(guesses)[:, None] * (instants + 1)  # one row per guess
        departures = np.bincount(slots.ravel(), minlength=guesses * (instants + 1))
        return departures.astype(np.int16).reshape(guesses, instants + 1)[:, :instants]

    def misfit(self, parts: Parts) -> Floats:
        """Return by how many jobs the totals are off, summed over all instants."""
        off = parts.cumsum(axis=1, dtype=np.int32)
        off -= self._departed
        total = off.sum(axis=1, dtype=np.float64)
        above = np.maximum(off, 0, out=off).sum(axis=1, dtype=np.float64)
        misfit: Floats = self.CLOUD * above + (above - total)
        return misfit

    def explained(self, misfit: float) -> bool:
        """Return whether the Cloud may account for the misfit."""
        return self.excess(misfit) <= 1

    def excess(self, misfit: float) -> float:
        """Return the misfit as a multiple of what the Cloud may cause."""
        return misfit / (self.NOISE * self.decisions)


class ThoroughTotalEvidence(TotalEvidence):
    """The same with more guesses, which now and then draw a number anew.

    For an agent that must not rely on a wrong explanation, and does not probe.
    """

    redraws = True
    most_guesses = 2000
    MOST, WORK = 1500, 90_000


class CloudedTotalEvidence(ThoroughTotalEvidence):
    """The same where the Cloud is busy, so that its part of the total must not mislead.

    The Cloud can only add jobs, and those that it adds stay for some decisions: a total above the
    predicted one weighs little, and one below it weighs all.
    """

    CLOUD = 0.2
    NOISE = 0.05
