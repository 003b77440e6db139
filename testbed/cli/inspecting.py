"""`fogveil inspect`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from fogveil.errors import InputError
from testbed.cli.shared import err, out, say
from testbed.inspecting.learned import Learned, Summary, show
from testbed.inspecting.merging import Crossed, Merger, crossings
from testbed.inspecting.recordings import Recordings, find_live
from testbed.inspecting.showing import Filter, JsonLines, Lines, Seen, conclude


def inspect(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A recorded run's folder, or one participant's.",
            readable=False,  # what cannot be read is told in a sentence of ours
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="The testbed at work, the newest one; follows it.")
    ] = False,
    sender: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Only what this one sent.")
    ] = None,
    receiver: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Only what this one received.")
    ] = None,
    between: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only what crossed between these two.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this method, as in Watch.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS",
            help="Only request, response, metadata, initial-metadata, trailing-metadata, status "
            "or (of the broker) delivery; some of them with commas.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show the first N crossings.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on while the testbed is at work.")
    ] = False,
    about: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Sum up all that the agent ever learned from this one."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="With --about: every message, in order.")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="What the agent learned from each provider.")
    ] = False,
    packets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Hold the recording to packets captured meanwhile (pcap, pcapng)."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each crossing, or for the summary.")
    ] = False,
) -> None:
    """Show every message that crossed gRPC: when, from whom to whom, how large, field by field.

    Both ends of each channel have recorded it; where they disagree, or a message holds bytes that
    no field of the protocol explains, this says so and ends with exit code 1. What the broker
    delivered is shown as well, as those recorded it whom it was delivered to.
    """
    wanted = Filter.read(sender, receiver, between, method, kind)
    _check(about, packets, summary=summary, whole=whole, filtered=wanted != Filter() or bool(limit))
    if run is None and not live:
        raise InputError("name the folder of a recorded run, or give --live for the one at work")
    recordings = find_live(run) if live else Recordings(run or Path())
    merger, seen = Merger(lambda: recordings.parties), Seen()
    found = _noting(crossings(recordings, merger, follow=follow or live), seen)
    good = True
    if packets:
        good = _hold(recordings, found, packets, as_json=as_json)
    elif about:
        _learn(found, seen, about, whole=whole, as_json=as_json)
    elif summary:
        _sum_up(found, as_json=as_json)
    else:
        lines = JsonLines(seen) if as_json else Lines(out, seen)
        for crossed in islice((each for each in found if wanted.wants(each.one)), limit):
            lines.print(crossed)
        if not (follow or live):
            for _ in found:  # what is not shown is checked all the same
                pass
            seen.check(wanted)
        if not as_json and lines.shown < merger.verdict.crossings:
            say(f"shown: {lines.shown:,} of {merger.verdict.crossings:,} crossings")
    if not as_json or not merger.verdict.good:
        conclude(merger.verdict, err if as_json else out)
    if not (good and merger.verdict.good):
        raise typer.Exit(1)


def _check(
    about: str | None, packets: Path | None, *, summary: bool, whole: bool, filtered: bool
) -> None:
    chosen = [option for option in (about, packets, summary) if option]
    if len(chosen) > 1:
        raise InputError("choose one of --about, --summary and --packets")
    if whole and not about:
        raise InputError("--whole goes with --about")
    if chosen and filtered:
        raise InputError(
            "--from, --to, --between, --method, --kind and --limit are for the list of crossings, "
            "not for --about, --summary or --packets"
        )


def _noting(found: Iterator[Crossed], seen: Seen) -> Iterator[Crossed]:
    for crossed in found:
        seen.take(crossed.one)
        yield crossed


def _learn(found: Iterator[Crossed], seen: Seen, about: str, *, whole: bool, as_json: bool) -> None:
    learned = Learned(about, whole=whole)
    for crossed in found:
        learned.take(crossed.received or crossed.one)
    seen.check_about(about, learned=bool(learned.received))
    if as_json:
        print(json.dumps(learned.plain()))  # noqa: T201 (the promised object)
        return
    say(f"Everything the {learned.by} ever learned from {about}:")
    show(learned, out)


def _sum_up(found: Iterator[Crossed], *, as_json: bool) -> None:
    summary = Summary()
    for crossed in found:
        summary.take(crossed.received or crossed.one)
    if as_json:
        learned = {name: each.plain() for name, each in sorted(summary.providers.items())}
        print(json.dumps(learned))  # noqa: T201 (the promised object)
        return
    say("Everything the agent ever learned from each provider:")
    summary.show(out)


def _hold(
    recordings: Recordings, found: Iterator[Crossed], packets: Path, *, as_json: bool
) -> bool:
    from testbed.inspecting import holding

    servers = holding.servers_of(recordings.place)
    held = holding.Holding()
    for crossed in found:
        held.take(crossed.one)
    rows = held.compare(packets, servers)
    if as_json:
        print(json.dumps(holding.plain(held, rows)))  # noqa: T201 (the promised object)
    else:
        holding.show(held, rows, out)
        holding.conclude(held, rows, out)
    return not held.faults
