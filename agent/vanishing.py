"""Algorithm 1 of the paper: the load distribution with vanishing normalisation.

After its first step Algorithm 1 is d ← (d + e) / 2: the latest placement weighs 1/2, the one
before 1/4, and so on; the very first weighs as much as the second. So d is a weighted sum over
recent placements, and a state needs only their numbers. Beyond 24 placements the rest weighs
less than 2⁻²⁴ and is left out, in acting and in replay alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

REACH = 24
"""Placements that d looks back at."""
STEPS_BACK = np.arange(1, REACH + 1)
HALVES = (0.5**STEPS_BACK).astype(np.float32)


def vanishing_weights(ages: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """Return the weight of each of the last `REACH` placements, latest first, [decision, step].

    An age is the number of placements before the decision.

    >>> vanishing_weights(np.array([0, 1, 3]))[:, :4]
    array([[0.  , 0.  , 0.  , 0.  ],
           [1.  , 0.  , 0.  , 0.  ],
           [0.5 , 0.25, 0.25, 0.  ]], dtype=float32)
    """
    steps = STEPS_BACK[None, :]
    weights = np.where(steps <= ages[:, None], HALVES[None, :], np.float32(0))
    first = steps == ages[:, None]
    return np.where(first, 2 * weights, weights)
