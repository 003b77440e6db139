"""fogveil from Python: the public names, stable from one release to the next.

    import fogveil.api as fogveil

    scenario = fogveil.Scenario.load("paper").replace(rate=100, fog=20)
    result = fogveil.run(scenario, policy="veil", seed=7)
    result.summary, result.run_hash      # delays, percentiles, utilisation; the run's identity
    result.jobs, result.decisions        # pyarrow tables: .to_pandas() for data frames

    table = fogveil.compare(["tiny", scenario], ["jsq", "veil", MyPolicy], rates=[200, 100])
    table = fogveil.sweep({"scenario": "paper", "policies": ["jsq"], "grid": {"fog.count": [10, 20]}})
    fogveil.plot(table, x="fog.count", y="p95", to="p95")

    with fogveil.testbed(scenario, policy="jsq", mode="federated") as testbed:
        result = testbed.wait()          # one process per participant; the same run hash

The command `fogveil` calls these functions. Everything else below `fogveil.` may change.
"""

from fogveil.agent.policy import AgentView, Load, Observation, Policy
from fogveil.api.comparing import compare, plot, sweep
from fogveil.api.running import Run, RunningTestbed, run, testbed
from fogveil.api.training import evaluate, train
from fogveil.core.disclosure import CountKind, Level
from fogveil.core.errors import FogveilError, InfrastructureError, InputError
from fogveil.testbed.scenario import Scenario

__all__ = [
    "AgentView",
    "CountKind",
    "FogveilError",
    "InfrastructureError",
    "InputError",
    "Level",
    "Load",
    "Observation",
    "Policy",
    "Run",
    "RunningTestbed",
    "Scenario",
    "compare",
    "evaluate",
    "plot",
    "run",
    "sweep",
    "testbed",
    "train",
]
