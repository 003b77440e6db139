"""After a federated run: the experimenter joins what the participants recorded, each for itself.

The rows, the means and the run hash are those of the embedded engine: both use one `Joiner`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.record import read_record, record_path
from fogveil.errors import SurroundingsError
from fogveil.identity import AGENT
from provider_node.journal import journal_path, read_journal
from provider_node.node import Served
from testbed.federated.sources import HEADER as FEEDBACK_HEADER
from testbed.federated.sources import feedback_path
from testbed.federated.split import Split
from testbed.joining import Joiner, Sink
from testbed.world import World


def join(world: World, split: Split, episode: int, sinks: Iterable[Sink]) -> str:
    """Join the records of an episode by job id and return the run hash."""
    seats = split.seats
    try:
        journals = {
            name: _journal(journal_path(split.folder_of(name), episode))
            for name in (*seats.fogs, seats.cloud)
        }
        feedback = {
            line
            for name in seats.sources
            for line in _feedback(feedback_path(split.folder_of(name), episode))
        }
        joiner = Joiner(world.network.down, world.network.cloud_to_cluster, sinks)
        cloud = journals[seats.cloud]
        for decision in read_record(record_path(split.folder_of(AGENT), episode)):
            joiner.observed(decision.seen)
            joiner.decided(*decision[:6])
            name = seats.fogs[decision.node]
            served, forwarded = journals[name].pop(decision.job)
            _check_feedback(feedback, name, served)
            if forwarded:
                joiner.forwarded(decision.job)
            joiner.served([served])
            if forwarded:
                aggregate, fed_back = cloud.pop(decision.job)
                if fed_back:
                    _check_feedback(feedback, seats.cloud, aggregate)
                joiner.cloud_served([(aggregate, fed_back)])
    except (OSError, ValueError, KeyError) as error:
        raise SurroundingsError(
            f"the participants' records of episode {episode} do not fit together: {error}"
        ) from error
    if feedback or any(journals.values()):
        raise SurroundingsError(f"the records of episode {episode} hold jobs nobody placed")
    return joiner.close()


def _journal(path: Path) -> dict[int, tuple[Served, bool]]:
    return {served[0]: (served, on) for served, on in read_journal(path)}


def _feedback(path: Path) -> Iterable[tuple[int, str, float]]:
    with path.open(encoding="utf-8") as file:
        if file.readline().rstrip("\n") != FEEDBACK_HEADER:
            raise ValueError(f"{path} is not a cluster's record")
        for line in file:
            job, rest = line.rstrip("\n").split(",", 1)
            provider, finished = rest.rsplit(",", 1)
            yield int(job), provider, float(finished)


def _check_feedback(feedback: set[tuple[int, str, float]], name: str, served: Served) -> None:
    """A result reached its cluster as the provider noted it."""
    line = served[0], name, served[4]
    if line not in feedback:
        raise ValueError(f"the result of job {served[0]} from {name} never reached its cluster")
    feedback.remove(line)


def remove_records(split: Split, episode: int) -> None:
    """Remove what was joined: of a training only the log is kept."""
    seats = split.seats
    record_path(split.folder_of(AGENT), episode).unlink(missing_ok=True)
    for name in (*seats.fogs, seats.cloud):
        journal_path(split.folder_of(name), episode).unlink(missing_ok=True)
    for name in seats.sources:
        feedback_path(split.folder_of(name), episode).unlink(missing_ok=True)
