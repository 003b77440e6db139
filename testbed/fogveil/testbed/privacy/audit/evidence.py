"""The evidence of an audit: one tapped run, with all that the auditor knows of it.

The checks judge evidence, not a testbed: a recorded run can be changed and judged again.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property

from fogveil.broker.topics import Topics
from fogveil.protocol.identity import AGENT, BROKER, CLOCK, Identity
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.participant_config import Plan, roster
from fogveil.testbed.privacy.audit.host_watch import HostLog
from fogveil.testbed.privacy.audit.reference import (
    JOIN,
    Behaviour,
    Reference,
    compute_reference,
    is_computable,
    observe_agent,
)
from fogveil.testbed.privacy.audit.traffic import Traffic
from fogveil.testbed.privacy.audit.wire_log import WireLog
from fogveil.testbed.scenario.world import World


@dataclass
class Evidence:
    """A run as an auditor saw it from outside, and what the run should have been."""

    world: World
    plan: Plan
    wire: WireLog
    certificates: dict[str, bytes]
    """The certificate (DER) that was issued to each participant and to the broker."""
    authority: bytes
    """The certificate of the run's authority (DER)."""
    hashes: list[str]
    """The run hash of each episode, from the participants' records."""
    disagreements: list[str] = field(default_factory=list)
    """Why the records of an episode could not be joined, for each that has no hash."""
    host: HostLog = field(default_factory=HostLog)
    """What was seen of the participants' processes, files and output."""
    reference_: Reference | None = None
    """The reference, where it was computed before."""

    @cached_property
    def traffic(self) -> Traffic:
        """The wire log, read."""
        return Traffic(self.wire)

    @cached_property
    def reference(self) -> Reference:
        """What every participant should have sent."""
        if self.reference_ is None:
            computable = all(is_computable(spec) for spec in self.plan.policies)
            observed = None if computable else self._observed()
            self.reference_ = compute_reference(self.world, self.plan, self.wire.run, observed)
        return self.reference_

    def _observed(self) -> list[Behaviour]:
        """Return what the agent did under a policy that only the agent may run."""
        traffic, topics = self.traffic, Topics(self.wire.run)
        declared = [message.payload for message in traffic.messages.get((AGENT, CLOCK, JOIN), [])]
        placed = [
            [
                packet.payload
                for packet in traffic.published.get((AGENT, topics.placement(name)), [])
            ]
            for name in self.roster.fogs
        ]
        return observe_agent(self.world, self.plan, declared, placed)

    @property
    def roster(self) -> Roster:
        """Who takes part."""
        return roster(self.world, self.plan.source_processes)

    @property
    def providers(self) -> tuple[str, ...]:
        """The Fog providers and the Cloud."""
        return (*self.roster.fogs, self.roster.cloud)

    @property
    def receivers(self) -> tuple[str, ...]:
        """Everybody who may learn something that is not meant for it."""
        return (AGENT, *self.roster.sources, *self.providers, CLOCK, BROKER)

    def identity(self, name: str) -> Identity:
        """Return the identity of a participant."""
        return Identity(self.wire.run, self.roster.role_of(name) or name, name)

    def copy(self) -> Evidence:
        """Return a copy to change: its wire and host logs are its own."""
        return replace(
            self,
            wire=deepcopy(self.wire),
            host=deepcopy(self.host),
            certificates=dict(self.certificates),
            hashes=list(self.hashes),
            reference_=self.reference,
        )
