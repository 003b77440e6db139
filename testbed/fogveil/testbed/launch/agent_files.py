"""What the agent's process leaves in its folder: what it has learned, and when it began to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fogveil.agent.decision_record import Decision
from fogveil.agent.drift_record import (
    LONGEST_LINE,
    agent_path,
    checkpoint_path,
    read_drifts,
)
from fogveil.agent.learning.adaptation import AdaptationRequest, adaptation_values, describe
from fogveil.agent.learning.adapting import Firing
from fogveil.agent.learning.training_state import AGENT_FILE, CHECKPOINT
from fogveil.agent.policy import AgentView
from fogveil.core.errors import InfrastructureError
from fogveil.core.files import read_untrusted, write_private
from fogveil.testbed.records.output import ADAPTED, reporting_write_errors

LARGEST_CHECKPOINT = 2**32
"""Bytes: far above any replay memory."""


def copy_checkpoint_file(path: Path, target: Path) -> None:
    """Copy a file of the agent's, which may have put anything in its place."""
    try:
        content = read_untrusted(path, LARGEST_CHECKPOINT)
    except OSError as error:
        raise InfrastructureError(
            f"the agent's {path.name} is no checkpoint: it {error.strerror}"
        ) from error
    with reporting_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_private(target, content)


def copy_adapted(folder: Path, episode: int, out: Path) -> None:
    """Copy the agent that learned at work in an episode from its folder to that of the run."""
    copy_checkpoint_file(agent_path(folder, episode), out / ADAPTED / AGENT_FILE)
    copy_checkpoint_file(checkpoint_path(folder, episode), out / ADAPTED / CHECKPOINT)


def describe_adaptation(
    policy: str,
    view: AgentView,
    request: AdaptationRequest,
    path: Path,
    decisions: Sequence[Decision],
) -> dict[str, Any]:
    """Return what run.json says of an adapting agent, by its record of drifts at `path`.

    A record that disagrees with the decisions of the same run is refused.
    """
    limit = (len(decisions) + 2) * LONGEST_LINE
    try:
        firings = read_drifts(path, limit)
    except (OSError, ValueError, TypeError) as error:
        raise InfrastructureError(
            f"the agent's record {path.name} is no record: {error}"
        ) from error
    _check(path, firings, decisions)
    return describe(adaptation_values(policy, view, request), request.adapt, firings)


def _check(path: Path, firings: Sequence[Firing], decisions: Sequence[Decision]) -> None:
    before = 0
    for firing in firings:
        known = before < firing.decision <= len(decisions)
        if not known or decisions[firing.decision - 1].emitted != firing.time:
            raise InfrastructureError(
                f"the agent's record {path.name} has a drift at decision {firing.decision}, time "
                f"{firing.time:.6g}, and its decisions have none then"
            )
        before = firing.decision
