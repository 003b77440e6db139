"""The agent's configuration: the public facts, the providers' addresses, what to run or train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fogveil.agent.inbox import EmissionRules
from fogveil.agent.policy import AgentView, LatencyChange
from fogveil.protocol.settings import Settings


@dataclass(frozen=True)
class TrainingSettings:
    """An agent to train in place of policies to run."""

    agent: str
    hyperparameters: dict[str, Any]
    every: int
    """Episodes between checkpoints."""
    start: str | None
    """The trained agent to start from, as a file in the agent's folder."""
    replay: bool
    """Whether the buffer of that agent is taken over, too."""


@dataclass(frozen=True)
class AdaptationSettings:
    """How the agents of the policies go on learning at work."""

    adapt: str
    """A value of `fogveil.agent.learning.adapting.Adapt`."""
    changes: dict[str, Any]
    """Hyper-parameters that differ from the defaults."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings(Settings):
    """The agent's configuration: no fact about a provider but its name and address."""

    view: AgentView
    latency_changes: tuple[LatencyChange, ...]
    """The latencies from an instant on, in order of time: public, like the network."""
    providers: dict[str, str]
    """Where each provider's boundary is, as host:port."""
    sources: tuple[str, ...]
    """The sources processes, which publish workloads."""
    emissions: EmissionRules
    policies: tuple[str, ...]
    """The policy of each episode, by name or by its file in the agent's folder."""
    training: TrainingSettings | None
    adaptation: AdaptationSettings | None
    window: int
    """Decisions per window; 1 is lockstep, 0 lets the policy's nature decide."""
    late_after: float = 30.0
    """Seconds in which a provider must tell a count that others have told, where the run goes on
    without one that does not."""
