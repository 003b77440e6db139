"""Algorithm 1 of the paper: the load distribution with vanishing normalisation.

After its first step Algorithm 1 is d ← (d + e) / 2: the latest placement weighs 1/2, the one
before 1/4, and so on; the very first weighs as much as the second. So d is a weighted sum over
recent placements, and a state stores only their numbers. Older ones than the last 24 weigh less
than 2⁻²⁴ together and are left out, in acting and in replay alike.

The hyper-parameter `distribution_decay` lets d forget at another pace,
d ← decay * d + (1 - decay) * e, where 1/2 is the paper's.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil, log2

import numpy as np
import numpy.typing as npt


class VanishingDistribution:
    """The weights of recent placements in d.

    >>> VanishingDistribution(0.5).reach, VanishingDistribution(0.9).reach
    (24, 158)
    """

    def __init__(self, decay: float = 0.5) -> None:
        self.reach = ceil(24 / -log2(decay))
        """Placements that d is computed from; all older ones weigh less than 2⁻²⁴ together."""
        self.steps_back = np.arange(1, self.reach + 1)
        self._decay = decay

    def weights(self, ages: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Return the weight of each of the last `reach` placements, latest first, [decision, step].

        An age is the number of placements before the decision.

        >>> VanishingDistribution().weights(np.array([0, 1, 3]))[:, :4]
        array([[0.  , 0.  , 0.  , 0.  ],
               [1.  , 0.  , 0.  , 0.  ],
               [0.5 , 0.25, 0.25, 0.  ]], dtype=float32)
        """
        steps, kept = self.steps_back[None, :], 1 - self._decay
        later = kept * self._decay ** (steps - 1)
        weights = np.where(steps < ages[:, None], later, 0.0)
        first = steps == ages[:, None]  # the first of all weighs as much as all that are missing
        return np.where(first, later / kept, weights).astype(np.float32)

    @cached_property
    def table(self) -> npt.NDArray[np.float32]:
        """The weights by the number of placements so far, constant from `reach` + 1 on."""
        return self.weights(np.arange(self.reach + 2))
