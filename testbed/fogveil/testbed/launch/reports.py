"""What participants report to the launcher: lines of JSON, which are believed within bounds only.

A participant may send anything. A report is accepted if its sender has a right to it and every
value is of its type; what a participant says of others counts only if it is the clock's.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from fogveil.core.errors import InfrastructureError
from fogveil.core.safe_text import safe_text
from fogveil.protocol.identity import AGENT, CLOCK, CLOUD, PROVIDER, SOURCES

Report = dict[str, Any]
"""One report, by kind: those of a role are the fields of its class below."""

Number = Annotated[int, Field(ge=0, lt=2**63)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Port = Annotated[int, Field(gt=0, lt=2**16)]
Name = Annotated[str, Field(max_length=64)]


_NOT_SENT: Any = Field(default=None)
"""For a kind of report that a line need not have; an explicit null is refused."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _AnyReport(_Table):
    """What everybody may report: that another participant broke the protocol, and how."""

    accused: Name = ""
    sentence: str = ""


class _Position(_Table):
    """How far the run is."""

    episode: Number
    time: Finite
    decisions: Number
    placed: list[Number]


class _ClockReport(_AnyReport):
    listening: Port | None = None
    joined: Name = ""
    left: Name = ""
    lost: Name = ""
    finished: bool = False
    alive: bool = False
    refused: str = ""
    over: Number = 0
    crash: Name = ""
    restart: Name = ""
    clock: _Position = _NOT_SENT


class _ProviderReport(_AnyReport):
    listening: Port | None = None


class _AgentStatus(_Table):
    """How far the agent is; in training also what it has learned."""

    decisions: Number
    queued: int | None
    marked: list[Name] = []
    """The providers that it has marked."""
    counts: list[Annotated[int, Field(ge=-1, lt=2**32)]] | None = None
    """Queued jobs by provider, as the agent last saw them: Fog nodes, perhaps the Cloud. -1 is a
    count that was not told."""
    phase: Name = ""
    epsilon: Finite = 0.0
    loss: float = 0.0  # that of a training that diverges is no finite number
    trained: Number = 0


class _EpisodeFigures(_Table):
    """Those of `fogveil.agent.learning.training_state.EpisodeFigures`."""

    episode: Number
    phase: Name
    decisions: Number
    training_steps: Number
    epsilon: Finite
    loss: float
    returned: float
    cpu_seconds: Finite


class _AgentReport(_AnyReport):
    agent: _AgentStatus = _NOT_SENT
    episode: _EpisodeFigures = _NOT_SENT


class _SourcesReport(_AnyReport):
    pass


KINDS: dict[str, type[_Table]] = {
    AGENT: _AgentReport,
    CLOCK: _ClockReport,
    CLOUD: _ProviderReport,
    PROVIDER: _ProviderReport,
    SOURCES: _SourcesReport,
}
"""The reports that a participant of each role may send."""


def parse_report(name: str, role: str, line: str) -> Report | None:
    """Return the report in a line of standard output; None where there is none.

    An object that is no report of that role raises InfrastructureError, which names the sender.
    """
    try:
        found = from_json(line)
    except ValueError:  # no JSON, or nested too deeply
        return None
    if not isinstance(found, dict):
        return None
    try:
        report = KINDS[role].model_validate(found)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        where = safe_text(".".join(map(str, fault["loc"])), 80)
        raise InfrastructureError(
            f"{name} sent the launcher an invalid report: {where}: {safe_text(fault['msg'], 200)}"
        ) from None
    return report.model_dump(exclude_unset=True)
