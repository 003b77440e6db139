"""Checks each participant's record against the reference, and names the one who disagrees.

Nobody is believed about anything that follows from the scenario. The order of the checks finds the
culprit: emissions first, then the placements, which follow from them, then what follows from those.
Where two participants know a fact and their records cannot tell who of them lied, both are named.

What those recorded whom the agent had marked decides nothing: it is told apart, and what must have
happened stands in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NoReturn

from fogveil.agent.decision_record import UNSEEN, Decision
from fogveil.agent.visibility import Visibility
from fogveil.core.disclosure import Level
from fogveil.core.errors import InfrastructureError
from fogveil.core.membership import Membership
from fogveil.provider_node.journal import JournalLine
from fogveil.sources.records import EmittedWorkload, Feedback
from fogveil.testbed.records.reference import Journal, Placed, Reference
from fogveil.testbed.scenario.world import World

FACTS = {
    "job": "is number",
    "cluster": "is of cluster",
    "category": "is of category",
    "emitted": "was emitted at",
    "demand": "has the demand",
}
"""The fields of an emission, in words."""


@dataclass
class Recorded:
    """What the participants recorded of an episode, each for itself."""

    emissions: dict[str, list[EmittedWorkload]]
    """By sources process, as `feedback`."""
    decisions: list[Decision]
    journals: dict[str, list[JournalLine]]
    """By provider."""
    feedback: dict[str, list[Feedback]]


def verify(
    world: World,
    emitted: Sequence[EmittedWorkload],
    owners: Sequence[str],
    visibility: Visibility,
    recorded: Recorded,
    marked: Collection[str] = (),
) -> dict[str, list[str]]:
    """Raise an error that names who recorded something else than what must have happened.

    `emitted` is what the world's sources emit; `owners` the sources process of each cluster. Return
    how the records of those who are `marked` differ; their journals are replaced.
    """
    if world.loses_jobs:
        emitted = _with_retries(world, emitted, recorded.decisions)
    for name, emissions in recorded.emissions.items():
        _check_emissions(name, emissions, [e for e in emitted if owners[e.cluster] == name])
    _check_decisions(world, owners, recorded.decisions, emitted)
    reference = Reference(world, _placed(world, recorded.decisions))
    journals = recorded.journals
    differences = {
        name: _replace_journal(name, journals, expected)
        for name, expected in zip(world.nodes, reference.fogs, strict=True)
        if name in marked
    }
    _check_nodes(world, recorded)
    for name, expected in zip(world.nodes, reference.fogs, strict=True):
        _check_journal(name, journals[name], expected, lambda _job: "the agent")
    served_by = {decision.job: world.nodes[decision.node] for decision in recorded.decisions}
    _check_journal(
        world.cloud,
        journals[world.cloud],
        reference.cloud,
        lambda job: served_by.get(job, "a Fog provider"),
    )
    wrong = _check_counts(world, visibility, recorded.decisions, reference, marked)
    for name, sentence in wrong.items():
        differences[name].append(sentence)
    _check_feedback(world, owners, recorded, reference, marked)
    return differences


def _disagree(sentence: str) -> InfrastructureError:
    return InfrastructureError(f"the records do not agree: {sentence}")


# --- sources and agent ---------------------------------------------------------------------------


def _check_emissions(
    name: str, got: Sequence[EmittedWorkload], expected: Sequence[EmittedWorkload]
) -> None:
    if got == expected:
        return
    for one, other in zip(got, expected, strict=False):
        if one != other:
            fact, value, true = _first_difference(one, other)
            raise _disagree(
                f"{name} recorded that job {one.job} {FACTS[fact]} {value}; by the scenario {true}"
            )
    raise _disagree(
        f"{name} recorded {len(got)} emissions, the scenario has {len(expected)} for it"
    )


def _placed(world: World, decisions: Sequence[Decision]) -> list[list[Placed]]:
    """Return the jobs of each node, in the order of their decisions."""
    placed: list[list[Placed]] = [[] for _ in world.nodes]
    for decision in decisions:
        placed[decision.node].append(Placed(decision.job, decision.category, decision.arrival))
    return placed


def _with_retries(
    world: World, emitted: Sequence[EmittedWorkload], decisions: Sequence[Decision]
) -> list[EmittedWorkload]:
    """Return all emissions, those of lost jobs again among them, in the order of decisions.

    What a crash loses follows from the placements. Of the agent's record only those are used that
    can be; the others will not fit the emissions that this returns.
    """
    by_job = {each.job: each for each in emitted}
    possible = [
        decision
        for decision in decisions
        if decision.job in by_job
        and decision.category == by_job[decision.job].category
        and 0 <= decision.node < len(world.nodes)
        and by_job[decision.job].emitted < decision.arrival < inf
    ]
    again = Reference(world, _placed(world, possible)).emitted_again
    return sorted(
        [*emitted, *(by_job[job]._replace(emitted=time) for time, job in again)],
        key=lambda each: (each.emitted, each.job),
    )


def _check_decisions(
    world: World,
    owners: Sequence[str],
    decisions: Sequence[Decision],
    emitted: Sequence[EmittedWorkload],
) -> None:
    got = [EmittedWorkload(*d[:3], d.emitted, d.demand) for d in decisions]
    if got != emitted:
        _blame_agent(got, emitted, owners)
    nodes = len(world.nodes)
    members = Membership(nodes, world.members)
    for job, cluster, category, node, time, arrival, _, _ in decisions:
        if not 0 <= node < nodes:
            raise _disagree(f"the agent's record places job {job} on node {node} of {nodes}")
        members.advance(time)
        if members.available is not None and node not in members.available:
            raise _disagree(
                f"the agent's record places job {job} on {world.nodes[node]} at {time!r}, which "
                "took no jobs then"
            )
        true = time + world.paths_over_time.at(time).up[cluster][category][node]
        if arrival != true:
            raise _disagree(
                f"the agent's record says that job {job} arrives at {world.nodes[node]} at "
                f"{arrival!r}; by its emission and the latency at {true!r}"
            )


def _blame_agent(
    got: Sequence[EmittedWorkload], emitted: Sequence[EmittedWorkload], owners: Sequence[str]
) -> NoReturn:
    for number, (one, other) in enumerate(zip(got, emitted, strict=False), 1):
        if one == other:
            continue
        fact, value, true = _first_difference(one, other)
        if fact == "job":
            raise _disagree(
                f"the agent's decision {number} is on job {value}, but it was job {true}'s turn"
            )
        raise _disagree(
            f"the agent's record says that job {one.job} {FACTS[fact]} {value}; "
            f"{owners[other.cluster]} recorded {true}"
        )
    raise _disagree(
        f"the agent recorded {len(got)} decisions, but {len(emitted)} workloads were emitted"
    )


def _first_difference(got: Any, expected: Any) -> tuple[str, Any, Any]:
    """Return the first field in which two named tuples differ, with both values."""
    facts = zip(got._fields, got, expected, strict=True)
    return next(fact for fact in facts if fact[1] != fact[2])


# --- providers -----------------------------------------------------------------------------------


def _check_nodes(world: World, recorded: Recorded) -> None:
    """Check that each job was served where the agent's record places it, and nowhere else."""
    served = {name: {line.served[0] for line in recorded.journals[name]} for name in world.nodes}
    placed = {decision.job: world.nodes[decision.node] for decision in recorded.decisions}
    for name, jobs in served.items():
        for job in jobs:
            node = placed.get(job)
            if node == name:
                continue
            if node is None:
                raise _disagree(
                    f"{name} recorded job {job}, which nobody emitted: {name} invented it, or the "
                    "agent placed it there"
                )
            if job in served[node]:
                raise _disagree(
                    f"{name} recorded job {job}, which {node} recorded, too: {name} invented it, "
                    "or the agent placed it on both"
                )
            raise _disagree(f"the agent's record places job {job} on {node}, but {name} served it")


def _check_journal(
    name: str,
    lines: Sequence[JournalLine],
    expected: Journal,
    giver: Callable[[int], str],
) -> None:
    """Check a provider's journal; `giver` is who sent it a job."""
    got = {line.served[0]: line for line in lines}
    if len(got) < len(lines):
        (twice, _), *_ = Counter(line.served[0] for line in lines).most_common(1)
        raise _disagree(f"{name} recorded job {twice} twice")
    if got == expected:
        return
    for job in got.keys() ^ expected.keys():
        if job in expected:
            raise _disagree(f"{giver(job)} did not send, or {name} did not record, job {job}")
        raise _disagree(
            f"{name} recorded job {job}, which does not go there: {name} invented it, or "
            f"{giver(job)} sent it"
        )
    for job, line in got.items():
        for fact, value, true in (
            ("is of category", line.served[1], expected[job].served[1]),
            ("arrived at", line.served[2], expected[job].served[2]),
            ("has the demand", line.demand, expected[job].demand),
        ):
            if value != true:
                who = giver(job)
                raise _disagree(
                    f"{name} recorded that job {job} {fact} {value}, which is {true}: "
                    f"{name} recorded, or {who} sent, something else"
                )
    for job, line in got.items():
        for fact, value, true in (
            ("started at", line.served[3], expected[job].served[3]),
            ("was finished at", line.served[4], expected[job].served[4]),
            ("went on", line.passed_on, expected[job].passed_on),
        ):
            if value != true:
                raise _disagree(
                    f"{name} recorded that job {job} {fact} {value}; by the scenario {true}"
                )


def _replace_journal(
    name: str, journals: dict[str, list[JournalLine]], expected: Journal
) -> list[str]:
    """Put what must have happened in place of a journal; return how it differs, if it does."""
    got, journals[name] = journals[name], list(expected.values())
    try:
        _check_journal(name, got, expected, lambda _job: "the agent")
    except InfrastructureError as error:
        return [str(error)]
    return []


# --- what crossed --------------------------------------------------------------------------------


def _check_counts(
    world: World,
    visibility: Visibility,
    decisions: Sequence[Decision],
    reference: Reference,
    marked: Collection[str],
) -> dict[str, str]:
    """Check the counts that the agent saw; return how those of the marked providers differ."""
    wrong: dict[str, str] = {}
    expected = reference.counts(visibility, [decision.emitted for decision in decisions])
    names = (*world.nodes, world.cloud)
    for decision, true in zip(decisions, expected, strict=True):
        got = decision.counts
        if got == true:
            continue
        when = f"at the decision on job {decision.job}"
        if len(got) != len(true):
            raise _disagree(f"the agent recorded {len(got)} counts {when}, expected {len(true)}")
        if visibility.level is Level.TOTAL:
            raise _disagree(
                f"the agent recorded a total of {got[0]} queued jobs {when}, by the journals it is "
                f"{true[0]}: a provider sent a wrong share, or the agent recorded a wrong sum"
            )
        for name, count, right in zip(names, got, true, strict=True):
            if count == right or (name in marked and count == UNSEEN):
                continue
            sentence = (
                f"{name} disclosed, or the agent recorded, {count} queued jobs {when}, "
                f"by the journal of {name} {right}"
            )
            if name not in marked:
                raise _disagree(sentence)
            wrong.setdefault(name, sentence)
    return wrong


def _check_feedback(
    world: World,
    owners: Sequence[str],
    recorded: Recorded,
    reference: Reference,
    marked: Collection[str],
) -> None:
    owner = {decision.job: owners[decision.cluster] for decision in recorded.decisions}
    expected: dict[str, dict[tuple[int, str], float]] = {name: {} for name in recorded.feedback}
    for name, journal in zip(world.nodes, reference.fogs, strict=True):
        for job, line in journal.items():
            expected[owner[job]][job, name] = line.served[4]
    for job, line in reference.cloud.items():
        if line.passed_on:
            expected[owner[job]][job, world.cloud] = line.served[4]
    for name, results in recorded.feedback.items():
        wanted = {key: time for key, time in expected[name].items() if key[1] not in marked}
        _check_results(name, [each for each in results if each[1] not in marked], wanted)


def _check_results(
    name: str, results: Sequence[Feedback], expected: Mapping[tuple[int, str], float]
) -> None:
    """Check the results that a sources process recorded: each once, as its provider sent it."""
    got = {(job, provider): finished for job, provider, finished in results}
    if got == expected and len(got) == len(results):
        return
    for job, provider in got.keys() ^ expected.keys():
        how = "did not record" if (job, provider) in expected else "recorded"
        raise _disagree(
            f"{name} {how} a result of job {job} from {provider}: {provider} sent it, or {name} "
            "recorded it, against the journals"
        )
    for (job, provider), finished in got.items():
        if finished != expected[job, provider]:
            raise _disagree(
                f"{provider} sent, or {name} recorded, that job {job} was finished at "
                f"{finished!r}; by the journals at {expected[job, provider]!r}"
            )
    raise _disagree(
        f"{name} recorded {len(results)} results, {len(results) - len(got)} of them twice"
    )
