"""fogveil from Python: the public names, stable from one release to the next.

    import fogveil.api as fogveil

    scenario = fogveil.Scenario.load("paper").replace(rate=100, fog=20)
    result = fogveil.run(scenario, policy="veil", seed=7)
    result.summary, result.run_hash      # delays, percentiles, utilisation; the run's identity
    result.jobs, result.decisions        # pyarrow tables: .to_pandas() for data frames

    table = fogveil.compare(["tiny", scenario], ["jsq", "veil", MyPolicy], rates=[200, 100])
    grid = {"fog.count": [10, 20]}
    table = fogveil.sweep({"scenario": "paper", "policies": ["jsq"], "grid": grid})
    fogveil.plot(table, x="fog.count", y="p95", to="p95")

    with fogveil.testbed(scenario, policy="jsq", mode="federated") as testbed:
        result = testbed.wait()          # one process per participant; the same run hash

The command `fogveil` calls these functions. Everything else below `fogveil.` may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fogveil.agent.policy import AgentView, Load, Observation, Policy
    from fogveil.api.comparing import compare, plot, sweep
    from fogveil.api.running import Run, RunningTestbed, run, testbed
    from fogveil.api.training import evaluate, train
    from fogveil.core.disclosure import CountKind, Level
    from fogveil.core.errors import FogveilError, InfrastructureError, InputError
    from fogveil.gym import policy_from_callable, policy_from_sb3, save_sb3
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
    "policy_from_callable",
    "policy_from_sb3",
    "run",
    "save_sb3",
    "sweep",
    "testbed",
    "train",
]

_HOMES = {
    "fogveil.agent.policy": ("AgentView", "Load", "Observation", "Policy"),
    "fogveil.api.comparing": ("compare", "plot", "sweep"),
    "fogveil.api.running": ("Run", "RunningTestbed", "run", "testbed"),
    "fogveil.api.training": ("evaluate", "train"),
    "fogveil.core.disclosure": ("CountKind", "Level"),
    "fogveil.core.errors": ("FogveilError", "InfrastructureError", "InputError"),
    "fogveil.gym": ("policy_from_callable", "policy_from_sb3", "save_sb3"),
    "fogveil.testbed.scenario": ("Scenario",),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is used: the agent's process has policies, and no testbed."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
