"""Events in words: what happens, and who is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from fogveil.testbed.scenario.events import (
    AnyEvent,
    CrashEvent,
    DemandEvent,
    JoinEvent,
    LeaveEvent,
    LinkEvent,
    MixEvent,
    MoveEvent,
    RateEvent,
    SpeedEvent,
)

MEMBERS = "agent and clock: who takes jobs"
_EVENTS: TypeAdapter[list[AnyEvent]] = TypeAdapter(list[AnyEvent])


def recorded_events(run: dict[str, Any]) -> list[AnyEvent]:
    """Return the events of a run from its run.json; one from before there were any has none."""
    return _EVENTS.validate_python(run["scenario"].get("events", []))


class EventText(NamedTuple):
    """An event in words."""

    at: float
    what: str
    """Short enough for a figure, as in `fog-3 × 2`."""
    told: str
    """Who is told of it when it happens."""


def event_text(event: AnyEvent) -> EventText:
    """Return an event in words."""
    match event:
        case SpeedEvent():
            change = f"× {event.factor:g}" if event.factor else f"{event.ipt:g} IPT"
            words = f"{event.node} {change}", event.node
        case LeaveEvent():
            gone = "" if event.gone is None else f", gone at {event.gone:,g}"
            words = f"{event.node} leaves{gone}", MEMBERS
        case JoinEvent():
            words = f"{event.node} joins", MEMBERS
        case CrashEvent():
            what = f"{event.node} crashes, jobs {event.jobs}, back at {event.back:,g}"
            owners = "; clusters: their lost jobs" if event.jobs == "lost" else ""
            words = what, f"{event.node}; {MEMBERS}{owners}"
        case RateEvent():
            words = _rate(event), "the sources"
        case MixEvent():
            shares = ", ".join(f"{name} {share:.0%}" for name, share in event.shares.items())
            words = shares, "the sources"
        case DemandEvent():
            change = f"× {event.factor:g}" if event.factor else f"{event.instructions:,g}"
            words = f"work of {event.application} {change}", "all providers"
        case LinkEvent():
            words = _link(event), "everybody"
        case MoveEvent():
            words = f"{event.cluster} moves to {event.to}", "everybody"
    return EventText(event.at, *words)


def event_texts(events: Sequence[AnyEvent]) -> list[EventText]:
    """Return events in words, and the returns from crashes among them, in order of time."""
    texts = [event_text(event) for event in events]
    texts += [
        EventText(event.back, f"{event.node} is back", f"{event.node}; {MEMBERS}")
        for event in events
        if isinstance(event, CrashEvent)
    ]
    return sorted(texts, key=lambda text: text.at)


def _rate(event: RateEvent) -> str:
    if event.scales:
        curve = ", ".join(f"{scale:g}" for scale in event.scales)
        return f"β {curve} over {event.period:,g}"
    until = "" if event.until is None else f" until {event.until:,g}"
    return f"β → {event.scale:g}{until}"


def _link(event: LinkEvent) -> str:
    changes = [] if event.failed is None else ["fails" if event.failed else "works"]
    changes += [] if event.bandwidth is None else [f"bandwidth {event.bandwidth:g}"]
    changes += [] if event.propagation is None else [f"propagation {event.propagation:g}"]
    return f"{event.link[0]} – {event.link[1]} {', '.join(changes)}"
