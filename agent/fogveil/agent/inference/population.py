"""A population of guesses of all service times, annealed until it explains the evidence.

A guess is a logarithm of speed per node and one of work per category; service takes work / speed.
Guesses that explain the evidence badly die out as the temperature falls; the others move, one
node, one pair of nodes or one category at a time, by steps of any size and by differences between
other guesses (differential evolution), so that steps shrink as the guesses agree. What remains is
a sample of indistinguishable explanations: its mean is the estimate, its spread the uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

from fogveil.agent.inference.evidence import Evidence, Parts
from fogveil.agent.inference.soft_means import SCALE, SPEEDS, WORKS
from fogveil.agent.inference.transcript import Floats, Ints
from fogveil.agent.policy import AgentView

COOLING = 0.75
"""Factor from one temperature to the next."""
FIRST_GUESSES = 1000
"""Guesses drawn from the prior, at least."""
STEP_EXPONENTS = (-4.0, -0.3)
"""Steps have sizes between ten to these powers."""

REDRAWN = 0.2
"""Share of the steps that draw a number anew, where guesses do."""


class Prior:
    """What is likely before any observation: nodes differ some, applications more."""

    def __init__(self, view: AgentView) -> None:
        self.nodes, self.categories = len(view.nodes), len(view.categories)
        latencies = [x for cluster in view.up + view.down for row in cluster for x in row]
        # The scale is unknown; the mean round trip is as good a guess as any.
        guess = log(2 * sum(latencies) / len(latencies) or 1.0)
        self._mean = np.array([0.0] * self.nodes + [guess] * self.categories)
        spreads = [sqrt(SPEEDS)] * self.nodes + [sqrt(SCALE + WORKS)] * self.categories
        self._deviation = np.array(spreads)

    def draw(self, guesses: int, random: np.random.Generator) -> Floats:
        """Return guesses drawn from the prior."""
        size = (guesses, len(self._mean))
        drawn: Floats = self._mean + self._deviation * random.standard_normal(size)
        return drawn

    def log_density(self, guesses: Floats) -> Floats:
        """Return the logarithm of the guesses' probability density, up to a constant."""
        squares = ((guesses - self._mean) / self._deviation) ** 2
        density: Floats = -0.5 * squares.sum(axis=1)
        return density


class Population:
    """The guesses, annealed on growing evidence."""

    def __init__(self, prior: Prior, random: np.random.Generator, guesses: int = 0) -> None:
        self._prior, self._random = prior, random
        self._all_nodes = range(prior.nodes)
        self._guesses = prior.draw(max(guesses, FIRST_GUESSES), random)

    @property
    def logarithms(self) -> tuple[Floats, Floats]:
        """Mean and deviation of the logarithms of service times, as tables[node, category]."""
        speeds, works = np.split(self._guesses, [self._prior.nodes], axis=1)
        logs = works[:, None, :] - speeds[:, :, None]
        return logs.mean(axis=0), logs.std(axis=0)

    @property
    def service(self) -> Floats:
        """The estimate: the guesses' geometric mean, as table[node, category]."""
        service: Floats = np.exp(self.logarithms[0])
        return service

    @property
    def misfit(self) -> float:
        """The misfit of the guess that explains the evidence best."""
        return float(self._misfits.min())

    def shift(self, place: int, step: float, deviation: float) -> None:
        """Move one number of all guesses: a speed, or from `nodes` on a category's work."""
        steps = step + deviation * self._random.standard_normal(len(self._guesses))
        self._guesses[:, place] += steps

    def explain(self, evidence: Evidence) -> None:
        """Anneal the guesses on evidence that extends what they explained before."""
        self._set_evidence(evidence)
        temperature = max(2 * float(self._misfits.std()), evidence.last_temperature)
        self._resample(1 / temperature, evidence.guesses)
        while temperature > evidence.last_temperature:
            self._sweep(temperature)
            colder = max(COOLING * temperature, evidence.last_temperature)
            self._resample(1 / colder - 1 / temperature, evidence.guesses)
            temperature = colder
        for _ in range(evidence.last_sweeps):
            self._sweep(temperature)

    def _set_evidence(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._parts = [self._part(node, self._guesses) for node in self._all_nodes]
        self._sum: Parts = sum(self._parts[1:], self._parts[0].copy())
        self._misfits = evidence.misfit(self._sum)

    def _part(self, node: int, guesses: Floats) -> Parts:
        speeds, works = guesses[:, node, None], guesses[:, self._prior.nodes :]
        with np.errstate(over="ignore"):
            return self._evidence.part(node, np.exp(works - speeds))

    def _resample(self, pressure: float, guesses: int) -> None:
        """Draw the guesses anew, in proportion to how well they explain the evidence."""
        chances = np.exp(-pressure * (self._misfits - self._misfits.min()))
        ends = np.cumsum(chances / chances.sum())
        picks = (np.arange(guesses) + self._random.random()) / guesses
        chosen = np.minimum(np.searchsorted(ends, picks), len(ends) - 1)
        self._guesses, self._misfits = self._guesses[chosen], self._misfits[chosen]
        self._sum = self._sum[chosen]
        self._parts = [part[chosen] for part in self._parts]

    def _sweep(self, temperature: float) -> None:
        nodes = self._prior.nodes
        order = self._random.permutation(nodes)
        for node in order:
            self._try(self._stepped(node), [node], temperature)
        if self._evidence.mixes_nodes:
            for one, other in order[: nodes // 2 * 2].reshape(-1, 2):
                self._try(self._exchanged(one, other), [one, other], temperature)
        for category in range(self._prior.categories):
            self._try(self._stepped(nodes + category), self._all_nodes, temperature)
        self._try(self._shifted(), self._all_nodes, temperature)

    def _try(self, guesses: Floats, changed: Sequence[int], temperature: float) -> None:
        """Replace guesses by new ones with Metropolis' acceptance probability."""
        parts = [self._part(node, guesses) for node in changed]
        total = self._sum.copy()
        for node, part in zip(changed, parts, strict=True):
            total += part - self._parts[node]
        misfits = self._evidence.misfit(total)
        gain = (self._misfits - misfits) / temperature
        gain += self._prior.log_density(guesses) - self._prior.log_density(self._guesses)
        accepted = np.log(self._random.random(len(gain))) < gain
        self._guesses[accepted], self._misfits[accepted] = guesses[accepted], misfits[accepted]
        self._sum[accepted] = total[accepted]
        for node, part in zip(changed, parts, strict=True):
            self._parts[node][accepted] = part[accepted]

    def _stepped(self, place: int) -> Floats:
        """Change one number of each guess, by a step or by a difference of two others."""
        guesses, size = self._guesses.copy(), len(self._guesses)
        one, other = self._others()
        scale = self._random.choice([1.0, 0.5, 0.1], size)
        difference = scale * (guesses[one, place] - guesses[other, place])
        takes_step = self._random.random(size) < 0.5  # noqa: PLR2004
        guesses[:, place] += np.where(takes_step, self._steps(), difference)
        if self._evidence.redraws:
            drawn = self._random.random(size) < REDRAWN
            guesses[drawn, place] = self._prior.draw(size, self._random)[drawn, place]
        return guesses

    def _exchanged(self, one: int, other: int) -> Floats:
        """Change two nodes in opposite directions: as one gets faster, the other gets slower."""
        guesses, size = self._guesses.copy(), len(self._guesses)
        kinds = self._random.choice(3, size, p=[0.2, 0.3, 0.5])
        swapped, traded, evolved = (kinds == kind for kind in range(3))
        first, second = self._others()
        step = self._steps()
        for node, partner, sign in ((one, other, 1), (other, one, -1)):
            old = self._guesses[:, node]
            guesses[swapped, node] = self._guesses[swapped, partner]
            guesses[traded, node] += sign * step[traded]
            guesses[evolved, node] += (old[first] - old[second])[evolved]
        return guesses

    def _shifted(self) -> Floats:
        """Change all of a guess by a difference of two others."""
        guesses, dimensions = self._guesses, self._guesses.shape[1]
        one, other = self._others()
        usual = 2.38 / sqrt(2 * dimensions)  # ter Braak's choice for differential evolution
        scale = self._random.choice([usual, 0.1, 1.0], (len(guesses), 1))
        jitter = 10.0 ** STEP_EXPONENTS[0] * self._random.standard_normal(guesses.shape)
        shifted: Floats = guesses + scale * (guesses[one] - guesses[other]) + jitter
        return shifted

    def _others(self) -> Ints:
        return self._random.integers(len(self._guesses), size=(2, len(self._guesses)))

    def _steps(self) -> Floats:
        size = len(self._guesses)
        steps: Floats = 10.0 ** self._random.uniform(*STEP_EXPONENTS, size)
        return steps * self._random.standard_normal(size)
