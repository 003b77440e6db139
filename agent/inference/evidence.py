"""How badly guessed service times explain what was seen, many guesses at a time.

A node is taken for what is public of it: one server, first come, first served. Its own jobs, when
they arrive and in which order are known, so guessed service times say when each job starts and
finishes. The evidence is a sum of one part per node, so that a guess can be changed at one node
without going over the others again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from agent.inference.transcript import Floats, Ints, Transcript
from fogveil.disclosure import CountKind

Parts = npt.NDArray[Any]
"""What each guess says of one node: [guess, …], to be summed over the nodes."""
ROUNDING = 1e-9
"""A job that starts at the very instant of a look has started; sums of floats may say later."""


class Line:
    """The attacker's own jobs at one node, in the order in which they are served."""

    def __init__(self, transcript: Transcript, node: int) -> None:
        self.arrivals, self._categories = transcript.arrivals_at(node)
        self._waiting = transcript.view.count is CountKind.WAITING

    def moves(self, service: Floats) -> Floats:
        """Return when each job leaves the count, [guess, job]: its start, or its finish.

        >>> import numpy as np
        >>> line = Line.__new__(Line)
        >>> line.arrivals, line._categories = np.array([0.0, 1.0, 9.0]), np.array([0, 0, 0])
        >>> line._waiting = False
        >>> line.moves(np.array([[3.0]]))
        array([[ 3.,  6., 12.]])
        """
        times = service[:, self._categories]
        done = np.cumsum(times, axis=1)
        # Lindley's recursion in closed form: work done so far, and the idle time before it.
        finishes = done + np.maximum.accumulate(self.arrivals - (done - times), axis=1)
        moves: Floats = finishes - times if self._waiting else finishes
        return moves


class Evidence(ABC):
    """What was seen up to some decision."""

    hardest: float
    """The misfit that is no more than chance or rounding: annealing ends at this temperature."""
    settling: ClassVar[int]
    """Sweeps at that temperature."""
    guesses: int
    """How large a population it takes."""
    mixes_nodes: ClassVar[bool]
    """Whether one node's deed may be taken for another's."""
    growths: ClassVar[tuple[float, ...]]
    """By which factor the evidence grows from stage to stage, in one attempt after the other."""

    def __init__(self, transcript: Transcript) -> None:
        self.decisions = len(transcript)
        self.instants = transcript.times
        self.lines = [Line(transcript, node) for node in range(len(transcript.view.nodes))]

    @abstractmethod
    def part(self, node: int, service: Floats) -> Parts:
        """Return what guesses of a node's service times, [guess, category], say of it."""

    @abstractmethod
    def misfit(self, parts: Parts) -> Floats:
        """Return how far the sum of all nodes' parts is from what was seen, per guess."""

    @abstractmethod
    def explained(self, misfit: float) -> bool:
        """Tell whether so small a misfit leaves nothing to be explained."""


class CountEvidence(Evidence):
    """Each node's count: it says between which two looks each job left the count.

    The misfit is the time by which guessed starts or finishes lie outside of these brackets. It
    is zero for the truth, and for all that cannot be told from it.
    """

    settling = 20
    guesses = 128
    mixes_nodes = False
    growths = (4.0, 1.5)

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        nodes = range(len(self.lines))
        self._brackets = [self._brackets_of(node, transcript.counts_of(node)) for node in nodes]
        self._gap = float(np.ptp(self.instants)) / self.decisions or 1.0
        self.hardest = 1e-3 * self._gap

    def part(self, node: int, service: Floats) -> Parts:
        """Return the time outside of the brackets, [guess]."""
        earliest, latest = self._brackets[node]
        moves = self.lines[node].moves(service)
        outside = np.maximum(earliest - moves, 0.0) + np.maximum(moves - latest, 0.0)
        part: Parts = outside.sum(axis=1)
        return part

    def misfit(self, parts: Parts) -> Floats:
        """Return the time outside of all brackets."""
        return parts

    def explained(self, misfit: float) -> bool:
        """No more than rounding and the last heat may be left over."""
        return misfit <= self._gap

    def _brackets_of(self, node: int, counts: Ints) -> tuple[Floats, Floats]:
        arrivals, instants = self.lines[node].arrivals, self.instants
        moved = np.searchsorted(arrivals, instants, side="right") - counts
        # The first look by which more than j jobs had moved shows the j-th one gone.
        gone = np.searchsorted(np.maximum.accumulate(moved), np.arange(len(arrivals)), side="right")
        before, after = np.append(-np.inf, instants), np.append(instants, np.inf)
        return before[gone], after[gone]


class TotalEvidence(Evidence):
    """The sum of all counts. What the Cloud adds is chance to the attacker, and taken for noise.

    The misfit is the sum over all looks of |total seen - total guessed|.
    """

    hardest = 1.0
    settling = 6
    mixes_nodes = True
    growths = (1.3, 2.0, 1.3, 2.0, 1.3, 1.3)
    CHANCE = 0.15
    """Jobs per look that the Cloud may add; a wrong explanation is off by more."""
    FEWEST, MOST, WORK = 128, 500, 60_000
    """Guesses, and guesses times looks: the longer the record, the fewer ways to explain it."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self.guesses = min(max(self.WORK // self.decisions, self.FEWEST), self.MOST)
        arrived = [
            np.searchsorted(line.arrivals, self.instants, side="right") for line in self.lines
        ]
        self._moved = (np.sum(arrived, axis=0) - transcript.totals).astype(np.int32)
        """Jobs that have left the counts by each instant, if the Cloud added none."""

    def part(self, node: int, service: Floats) -> Parts:
        """Return how many jobs leave the node's count before each instant, [guess, instant]."""
        moves = self.lines[node].moves(service)
        guesses, instants = len(moves), self.decisions
        seen_at = np.searchsorted(self.instants, moves.ravel() - ROUNDING).reshape(moves.shape)
        seen_at += np.arange(guesses)[:, None] * (instants + 1)  # one row per guess
        moved = np.bincount(seen_at.ravel(), minlength=guesses * (instants + 1))
        return moved.astype(np.int16).reshape(guesses, instants + 1)[:, :instants]

    def misfit(self, parts: Parts) -> Floats:
        """Return by how many jobs the totals are off, over all instants."""
        off = parts.cumsum(axis=1, dtype=np.int32)
        off -= self._moved
        misfit: Floats = np.abs(off, out=off).sum(axis=1, dtype=np.float64)
        return misfit

    def explained(self, misfit: float) -> bool:
        """What is left over may be the Cloud's."""
        return misfit <= self.CHANCE * self.decisions
