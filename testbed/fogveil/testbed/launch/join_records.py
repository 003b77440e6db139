"""Joining what the participants of a federated run recorded, each for itself, once it is over.

The rows, the means and the run hash are those of the embedded engine: both use one `Joiner`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from fogveil.agent.decision_record import Decision, read_record, record_path
from fogveil.agent.drift_record import drifts_path
from fogveil.agent.marks import Mark, marks_by, read_marks
from fogveil.agent.visibility import Visibility
from fogveil.core.errors import InfrastructureError
from fogveil.core.files import remove_untrusted
from fogveil.protocol.identity import AGENT
from fogveil.provider_node.journal import JournalLine, journal_path, read_journal_lines
from fogveil.sources.records import emissions_path, feedback_path, read_emissions, read_feedback
from fogveil.testbed.engine.run import checked, describe
from fogveil.testbed.launch.agent_files import copy_adapted, describe_adaptation
from fogveil.testbed.launch.participant_config import Plan, Split
from fogveil.testbed.records.join import Joiner, Sink
from fogveil.testbed.records.output import write_json
from fogveil.testbed.records.reference import emitted_workloads
from fogveil.testbed.records.run_records import RunRecords
from fogveil.testbed.records.summary import Summary
from fogveil.testbed.records.verification import Recorded, verify
from fogveil.testbed.scenario.world import World

LONGEST_LINE = 256
"""Bytes of a line in a record at most, without counts and names."""
LONGEST_COUNT = 12
"""Bytes of a count in the agent's record at most."""

LONGEST_TIME = 20
"""Bytes of a service time in the agent's record of its marks at most."""

Line = TypeVar("Line")
Reader = Callable[[Path, int], Iterable[Line]]
"""Yields the lines of a record of at most so many bytes."""


def join_episodes(
    world: World,
    plan: Plan,
    split: Split,
    broker: str,
    out: Path | None,
    begin: float,
    *,
    cpu_seconds: float | None,
    losses: list[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Join the participants' records; return and write the content of run.json for each episode.

    `begin` is when the run began, by the performance counter; `losses` are those from which it has
    recovered, where it would have.
    """
    results = []
    for episode, (policy, draw) in enumerate(plan.episodes):
        target = out if len(plan.episodes) == 1 or not out else out / f"episode-{episode:04}"
        drawn, level = world.drawn(draw), split.requirements(episode).needs
        summary = Summary(drawn)
        with RunRecords(target, drawn) if target else nullcontext() as records:
            sinks: list[Sink] = [summary, records] if records else [summary]
            run_hash, decisions, marked = join_with_decisions(drawn, split, episode, sinks)
            totals = checked(summary)
        result = describe(drawn, policy, level, plan.mode, run_hash, totals)
        result["federated"] = {
            "broker": broker,
            "window": plan.window,
            "source_processes": plan.source_processes,
            "draw": draw,
            "namespaces": split.site.namespaces,
        }
        if plan.adaptation:
            folder = split.folder_of(AGENT)
            result |= describe_adaptation(
                *(policy, drawn.agent, plan.adaptation, drifts_path(folder, episode), decisions)
            )
            if target:
                copy_adapted(folder, episode, target)
        if losses is not None:
            result["losses"] = losses
            result["marked"] = marked
        result["wall_seconds"] = time.perf_counter() - begin
        result["cpu_seconds"] = cpu_seconds
        if target:
            write_json(target / "run.json", result)
        results.append(result)
    return results


def join(world: World, split: Split, episode: int, sinks: Iterable[Sink]) -> str:
    """Join the records of an episode by job id and return the run hash.

    Records that differ from what must have happened are refused, and whose they are is named.
    """
    return join_with_decisions(world, split, episode, sinks)[0]


def join_with_decisions(
    world: World, split: Split, episode: int, sinks: Iterable[Sink]
) -> tuple[str, list[Decision], list[dict[str, Any]]]:
    """Join the records of an episode; return run hash, decisions and whom the agent marked.

    What the marked recorded themselves is not used, and where it differs is said.
    """
    emitted, roster = emitted_workloads(world), split.roster
    policy = split.requirements(episode)
    visibility = Visibility(policy.needs, watches_cloud=policy.watches_cloud)
    told = (len(emitted) + 2) * (LONGEST_LINE + LONGEST_TIME * len(world.agent.categories))
    marks = _read_marks(split, episode, told)
    recorded, unreadable = _read(split, episode, len(emitted), marks)
    differences = verify(world, emitted, split.owners, visibility, recorded, marks)
    for name, sentence in unreadable.items():
        differences[name] = [sentence]
    journals = {
        name: {line.served[0]: line for line in lines} for name, lines in recorded.journals.items()
    }
    cloud = journals[roster.cloud]
    joiner = Joiner(world.paths_over_time, sinks, retries=world.loses_jobs)
    final = {decision.job: number for number, decision in enumerate(recorded.decisions)}
    for number, decision in enumerate(recorded.decisions):
        joiner.observed(decision.counts)
        joiner.decided(*decision[:6])
        if final[decision.job] != number:
            continue  # a crash lost it
        line = journals[roster.fogs[decision.node]][decision.job]
        if line.passed_on:
            joiner.forwarded(decision.job)
        joiner.served([line.served])
        if line.passed_on:
            joiner.cloud_served([cloud[decision.job][:2]])
    marked = [_describe_mark(mark, differences[name]) for name, mark in marks.items()]
    return joiner.close(), recorded.decisions, marked


def _describe_mark(mark: Mark, differences: list[str]) -> dict[str, Any]:
    """Return a mark as run.json has it."""
    return {
        "who": mark.who,
        "episode": mark.episode,
        "simulated_time": mark.time,
        "why": mark.why,
        "its_records_differ": differences,
    }


def mark_line(mark: Mapping[str, Any]) -> str:
    """Return a sentence on a mark, as run.json has it."""
    line = f"{mark['who']} was marked at simulated time {mark['simulated_time']:.6g}: {mark['why']}"
    return "; ".join((line, *mark["its_records_differ"]))


def _read_marks(split: Split, episode: int, told: int) -> dict[str, Mark]:
    """Return whom the agent had marked by the end of an episode, and why.

    `told` is how many bytes of a mark are at most what a provider had told.
    """
    limit = len(split.roster.fogs) * (episode + 1) * told
    try:
        return marks_by(read_marks(split.folder_of(AGENT), limit), episode, split.roster.fogs)
    except (OSError, ValueError) as error:
        raise InfrastructureError(f"the agent's record of its marks is none: {error}") from error


def _read(
    split: Split, episode: int, jobs: int, marked: Collection[str]
) -> tuple[Recorded, dict[str, str]]:
    """Read the records of an episode of so many jobs, which bounds their sizes.

    A marked provider's may be none: return also what is wrong with it.
    """
    unreadable: dict[str, str] = {}
    roster = split.roster
    providers = (*roster.fogs, roster.cloud)
    name_size = max(len(name.encode()) for name in providers)
    limit = (jobs + 2) * LONGEST_LINE
    decisions_limit = limit + jobs * LONGEST_COUNT * len(providers)
    feedback_limit = 2 * limit + 2 * jobs * name_size

    def read(reader: Reader[Line], path: Path, limit: int) -> list[Line]:
        try:
            return list(reader(path, limit))
        except (OSError, ValueError) as error:
            reason = f"{path.name} {error.strerror}" if isinstance(error, OSError) else error
            raise InfrastructureError(
                f"the record of {unquote(path.parent.name)} in episode {episode} is no record: "
                f"{reason}"
            ) from error

    def read_journal(name: str) -> list[JournalLine]:
        try:
            return read(read_journal_lines, journal_path(folder(name), episode), limit)
        except InfrastructureError as error:
            if name not in marked:
                raise
            unreadable[name] = str(error)
            return []

    folder = split.folder_of
    recorded = Recorded(
        {
            n: read(read_emissions, emissions_path(folder(n), episode), limit)
            for n in roster.sources
        },
        read(read_record, record_path(folder(AGENT), episode), decisions_limit),
        {name: read_journal(name) for name in providers},
        {
            n: read(read_feedback, feedback_path(folder(n), episode), feedback_limit)
            for n in roster.sources
        },
    )
    return recorded, unreadable


def remove_records(split: Split, episode: int) -> None:
    """Remove the records of an episode that was joined: a training keeps only its log."""
    roster = split.roster
    paths = [record_path(split.folder_of(AGENT), episode)]
    paths += [journal_path(split.folder_of(name), episode) for name in (*roster.fogs, roster.cloud)]
    for name in roster.sources:
        folder = split.folder_of(name)
        paths += [emissions_path(folder, episode), feedback_path(folder, episode)]
    for path in paths:
        remove_untrusted(path)
