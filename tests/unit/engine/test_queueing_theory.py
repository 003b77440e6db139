"""Long runs against closed formulas: M/M/1 and M/D/1 mean waits."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy import stats
from support import ONE_NODE, make_run

BATCHES = 20


@pytest.mark.parametrize("load", [0.5, 0.8])
@pytest.mark.parametrize(("distribution", "squared_cv"), [("exponential", 1), ("deterministic", 0)])
def test_mean_wait_is_pollaczek_khinchines(distribution, squared_cv, load):
    service = 20.0
    app = {"name": "only", "instructions": 2000.0, "bytes_up": 0.0, "bytes_down": 0.0}
    run = make_run(
        "nearest",
        topology=ONE_NODE,
        applications=[app],
        fog__ipt=100.0,
        fog__ram=1.0,
        sources__scale=service / load,
        horizon=3e6,
        service__distribution=distribution,
    )
    waits = run.jobs["started"] - run.jobs["arrived"]
    expected = load * service * (1 + squared_cv) / 2 / (1 - load)
    # Waits in a queue are correlated: the interval comes from batch means, not from single waits.
    batches = np.array([batch.mean() for batch in np.array_split(waits, BATCHES)])
    half_width = stats.t.ppf(0.975, BATCHES - 1) * batches.std(ddof=1) / sqrt(BATCHES)
    assert len(waits) > 70_000
    assert half_width < 0.1 * expected
    assert abs(batches.mean() - expected) < 1.5 * half_width
