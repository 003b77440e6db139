"""The events of a scenario: what changes at which simulated time, and whom it concerns."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fogveil.testbed.scenario.tables import Name, NotNegative, Positive, ScenarioTable, Share


class Event(ScenarioTable):
    """What all events have. Those of one instant take place in the order of the file."""

    at: NotNegative
    """Simulated time of the event; it precedes the decisions of its instant."""


class SpeedEvent(Event):
    """A provider is upgraded or downgraded, from the next job that it starts."""

    kind: Literal["speed"]
    node: Name
    """The Fog node, or the Cloud."""
    ipt: Positive | None = None
    """The new speed in instructions per time unit."""
    factor: Positive | None = None
    """In place of ipt: the new speed as a multiple of the one before."""

    @model_validator(mode="after")
    def _one_change(self) -> Self:
        if (self.ipt is None) == (self.factor is None):
            raise ValueError("expected one of the keys ipt and factor")
        return self


class LeaveEvent(Event):
    """A Fog node takes no more jobs, and serves those that are on their way."""

    kind: Literal["leave"]
    node: Name
    """The Fog node."""
    gone: Positive | None = None
    """When it tells its count no more; without it, it tells it to the end."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.gone is not None and self.gone < self.at:
            raise ValueError("expected gone ≥ at")
        return self


class JoinEvent(Event):
    """A Fog node takes jobs (again); one whose first event this is was absent until then."""

    kind: Literal["join"]
    node: Name
    """The Fog node."""


class CrashEvent(Event):
    """A Fog node is gone with all that it holds, until it is back."""

    kind: Literal["crash"]
    node: Name
    """The Fog node."""
    back: Positive
    """When it is back."""
    jobs: Literal["recovered", "lost"] = "recovered"
    """`recovered`: they are served afterwards, an interrupted service from its beginning, and what
    arrives meanwhile waits. `lost`: so is what arrives meanwhile; clusters emit them again."""
    notice: Positive | None = None
    """For lost jobs: their clusters emit them again at `at` + `notice`."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.back <= self.at:
            raise ValueError("expected back > at")
        if (self.jobs == "lost") != (self.notice is not None):
            raise ValueError('expected the key notice with jobs = "lost", and only there')
        return self


class RateEvent(Event):
    """The rate of all sources changes: a step, a ramp, or a curve that repeats."""

    kind: Literal["rate"]
    scale: Positive | None = None
    """β from then on, in place of sources.scale; of a ramp, where it ends."""
    until: Positive | None = None
    """When a ramp from the β before to `scale` ends."""
    scales: list[Positive] | None = Field(default=None, min_length=2)
    """A curve in place of `scale`: values of β, evenly spaced over `period`, with straight lines
    between, again and again."""
    period: Positive | None = None
    """Length of the curve."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.scale is None) == (self.scales is None):
            raise ValueError("expected one of the keys scale and scales")
        if (self.scales is None) != (self.period is None):
            raise ValueError("expected the keys scales and period together")
        if self.until is not None and (self.scale is None or self.until <= self.at):
            raise ValueError("expected until > at, with scale")
        return self


class MixEvent(Event):
    """The shares of the applications change; the rate of all workloads together stays."""

    kind: Literal["mix"]
    shares: dict[Name, Share]
    """The share of each application; together 1."""


class DemandEvent(Event):
    """The work of an application changes, for jobs that arrive at a node from then on."""

    kind: Literal["demand"]
    application: Name
    """The application."""
    instructions: Positive | None = None
    """The new work of a job."""
    factor: Positive | None = None
    """In place of instructions: the new work as a multiple of the one before."""

    @model_validator(mode="after")
    def _one_change(self) -> Self:
        if (self.instructions is None) == (self.factor is None):
            raise ValueError("expected one of the keys instructions and factor")
        return self


class LinkEvent(Event):
    """A link changes, fails or works again, for what is sent from then on."""

    kind: Literal["link"]
    link: tuple[str, str] = Field(strict=False)
    """The nodes at its ends."""
    bandwidth: Positive | None = None
    """The new bandwidth in bytes per time unit."""
    propagation: Positive | None = None
    """The new propagation delay."""
    failed: bool | None = None
    """Whether nothing passes from then on."""

    @model_validator(mode="after")
    def _some_change(self) -> Self:
        if self.bandwidth is None and self.propagation is None and self.failed is None:
            raise ValueError("expected at least one of the keys bandwidth, propagation and failed")
        return self


class MoveEvent(Event):
    """An IoT cluster moves: its link leads to another node from then on."""

    kind: Literal["move"]
    cluster: Name
    """The cluster; it hangs on a single link."""
    to: str
    """The node that it hangs on from then on."""


AnyEvent = Annotated[
    SpeedEvent
    | LeaveEvent
    | JoinEvent
    | CrashEvent
    | RateEvent
    | MixEvent
    | DemandEvent
    | LinkEvent
    | MoveEvent,
    Field(discriminator="kind"),
]
