"""`fogveil inspect`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from fogveil.core.errors import InputError
from fogveil.testbed.cli.options import err, out, print_line
from fogveil.testbed.privacy.inspect.disclosure_summary import (
    DisclosureSummary,
    ProviderDisclosures,
)
from fogveil.testbed.privacy.inspect.filter import Filter, SeenNames
from fogveil.testbed.privacy.inspect.merge import MergedCrossing, Merger, merged_crossings
from fogveil.testbed.privacy.inspect.recordings import Recordings, find_live
from fogveil.testbed.privacy.inspect.render import JsonLines, Lines, print_report


def inspect(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="The folder of a recorded run, or of one of its participants.",
            readable=False,  # what cannot be read is reported by Recordings
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Follow the testbed that is running (the newest one).")
    ] = False,
    sender: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Only what NAME sent.")
    ] = None,
    receiver: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Only what NAME received.")
    ] = None,
    between: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only what A and B exchanged.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this method, e.g. Watch.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS",
            help="Only these kinds, separated by commas: request, response, metadata, "
            "initial-metadata, trailing-metadata, status, delivery (by the MQTT broker).",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first N crossings.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show new crossings until the testbed ends.")
    ] = False,
    about: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Sum up everything the agent learned from NAME."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="With --about: also list every message.")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Sum up what the agent learned from each provider.")
    ] = False,
    packets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare the recording with captured packets (pcap or pcapng)."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: an object per crossing, or the summary.")
    ] = False,
) -> None:
    """Show everything that crossed between participants: time, sender, receiver, size, fields.

    A crossing is a gRPC message, metadata or status, or a delivery by the MQTT broker. gRPC is
    recorded at both ends of each channel, deliveries by the receiver. If the two ends disagree, or
    a message has bytes that no field of the protocol explains, that is reported and the exit code
    is 1.
    """
    chosen = Filter.parse(sender, receiver, between, method, kind)
    filtered = chosen != Filter() or bool(limit)
    _check_options(about, packets, summary=summary, whole=whole, filtered=filtered)
    if run is None and not live:
        raise InputError("name the folder of a recorded run, or give --live for a running testbed")
    recordings = find_live(run) if live else Recordings(run or Path())
    merger, seen = Merger(lambda: recordings.recorders), SeenNames()
    crossings = _collect_names(merged_crossings(recordings, merger, follow=follow or live), seen)
    wire_ok = True
    if packets:
        wire_ok = _check_wire(recordings, crossings, packets, as_json=as_json)
    elif about:
        _summarize_one(crossings, seen, about, whole=whole, as_json=as_json)
    elif summary:
        _summarize_all(crossings, as_json=as_json)
    else:
        lines = JsonLines(seen) if as_json else Lines(out, seen)
        accepted = (merged for merged in crossings if chosen.accepts(merged.crossing))
        for merged in islice(accepted, limit):
            lines.print(merged)
        if not (follow or live):
            for _ in crossings:  # beyond the limit everything is checked all the same
                pass
            seen.check_filter(chosen)
        if not as_json and lines.shown < merger.report.crossings:
            print_line(f"shown: {lines.shown:,} of {merger.report.crossings:,} crossings")
    if not as_json or not merger.report.ok:
        print_report(merger.report, err if as_json else out)
    if not (wire_ok and merger.report.ok):
        raise typer.Exit(1)


def _check_options(
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


def _collect_names(
    crossings: Iterator[MergedCrossing], seen: SeenNames
) -> Iterator[MergedCrossing]:
    for merged in crossings:
        seen.add(merged.crossing)
        yield merged


def _summarize_one(
    crossings: Iterator[MergedCrossing], seen: SeenNames, about: str, *, whole: bool, as_json: bool
) -> None:
    summary = DisclosureSummary(about, keep_sequence=whole)
    for merged in crossings:
        summary.add(merged.received or merged.crossing)
    seen.check_about(about, learned=bool(summary.received))
    if as_json:
        print(json.dumps(summary.to_json()))  # noqa: T201 (the promised object)
        return
    print_line(f"Everything the {summary.by} ever learned from {about}:")
    summary.print(out)


def _summarize_all(crossings: Iterator[MergedCrossing], *, as_json: bool) -> None:
    summaries = ProviderDisclosures()
    for merged in crossings:
        summaries.add(merged.received or merged.crossing)
    if as_json:
        print(json.dumps(summaries.to_json()))  # noqa: T201 (the promised object)
        return
    print_line("Everything the agent ever learned from each provider:")
    summaries.print(out)


def _check_wire(
    recordings: Recordings, crossings: Iterator[MergedCrossing], packets: Path, *, as_json: bool
) -> bool:
    """Compare the recording with packets; return whether they agree."""
    from fogveil.testbed.privacy.inspect.wire_check import WireCheck, server_addresses

    servers = server_addresses(recordings.path)
    check = WireCheck()
    for merged in crossings:
        check.add(merged.crossing)
    check.compare(packets, servers)
    if as_json:
        print(json.dumps(check.to_json()))  # noqa: T201 (the promised object)
    else:
        check.print(out)
    return not check.faults
