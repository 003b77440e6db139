"""One embedded run whose agent goes on learning while it works (`--adapt`).

Apart from `run`, which comparisons depend on: what it does never changes with how agents learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fogveil.agent.policies as policies
from fogveil.agent.learning.adaptation import Adaptation, AdaptationRequest
from fogveil.agent.learning.training_state import AGENT_FILE, CHECKPOINT
from fogveil.testbed.engine.embedded import Progress
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.records.join import Sink
from fogveil.testbed.records.output import ADAPTED, write_json
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import build_world


def run_adapting(
    scenario: Scenario,
    policy: object,
    request: AdaptationRequest,
    out: Path | None = None,
    progress: Progress | None = None,
    watchers: Iterable[Sink] = (),
) -> dict[str, Any]:
    """Run a scenario as `run_embedded` does, under a trained agent that goes on learning.

    What it has learned is written to `out`/adapted. The policy must be a trained one.
    """
    adaptation = Adaptation(policy, build_world(scenario).agent, request)
    light, complete = (Path(ADAPTED) / name for name in (AGENT_FILE, CHECKPOINT))

    def report(now: float, decisions: int) -> None:
        if out:
            adaptation.save_weights_now_and_then(out / light)
        if progress:
            progress(now, decisions)

    result = run_embedded(scenario, adaptation.agent, out, report, watchers)
    result |= {"policy": policy, "label": policies.label_of(str(policy)), **adaptation.describe()}
    if out:
        adaptation.save(out / light, out / complete)
        write_json(out / "run.json", result)
    return result
