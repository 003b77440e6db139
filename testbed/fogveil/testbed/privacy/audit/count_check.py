"""The count and mask checks: counts are those of the journals, and no mask is used twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from fogveil.core.disclosure import CountKind, Level
from fogveil.protocol.identity import AGENT
from fogveil.protocol.recording import RESPONSE
from fogveil.provider_node.journal import journal_path, read_journal
from fogveil.testbed.privacy.audit.audited_run import AuditedRun
from fogveil.testbed.privacy.audit.findings import Finding, judge

NEAR = 256
"""Two shares under one mask differ by less than this."""
TOLERATED = 3
"""Near pairs that are tolerated beyond those expected by chance."""


def check_counts(run: AuditedRun) -> Finding:
    """Recompute every count from the provider's journal, so that it can hide nothing else."""
    world = run.world
    names = (*world.nodes, world.cloud)
    faults: list[str] = []
    compared = 0
    decision_times = run.decision_times()
    times = [time for episode in sorted(decision_times) for time in decision_times[episode]]
    true = {name: _counts_by_journal(run, name, decision_times) for name in names}
    sent = {name: _sent_numbers(run, name) for name in names}
    if world.agent.disclosed is Level.TOTAL:
        shares = np.array([sent[name] for name in names if sent[name]], np.uint64)
        total = shares.sum(axis=0) % 2**32 if shares.size else np.empty(0)
        true_total = np.array([true[name] for name in names]).sum(axis=0)[: len(total)]
        compared = len(total)
        faults += [
            f"the total at time {times[at]:.6g} was {total[at]}, by the journals {true_total[at]}"
            for at in np.flatnonzero(total != true_total)
        ]
    else:
        for name in names:
            if not sent[name]:
                continue
            if len(sent[name]) != len(times):
                faults.append(f"{name} sent {len(sent[name])} counts at {len(times)} decisions")
                continue
            compared += len(times)
            wrong = np.flatnonzero(np.array(sent[name]) != true[name])
            faults += [
                f"{name} sent the count {sent[name][at]} at time {times[at]:.6g}, by its journal "
                f"{true[name][at]}"
                for at in wrong
            ]
    evidence = f"{compared:,} counts equal those recomputed from the providers' journals"
    nothing = f"no provider sent a count at {len(times):,} decisions"
    return judge("truth: every count is the true count", evidence, faults, compared, nothing)


def check_masks(run: AuditedRun) -> Finding:
    """Look for masks that were used twice: two shares under one mask differ by little."""
    faults = []
    number = 0
    for name in (*run.world.nodes, run.world.cloud):
        shares = np.array(_sent_numbers(run, name), np.int64)
        number += len(shares)
        near = int((np.diff(np.sort(shares)) < NEAR).sum())
        # Of n numbers drawn at random from 2^32, about n^2 / 2^32 x NEAR are so near.
        if near > TOLERATED + len(shares) ** 2 * NEAR / 2**32 * 4:
            faults.append(f"{near} of {len(shares)} shares of {name} lie within {NEAR} of another")
    evidence = f"{number:,} shares: none lies nearer to another than chance would put it"
    return judge("masks: none is used twice", evidence, faults, number, "no share was sent")


def _sent_numbers(run: AuditedRun, name: str) -> list[int]:
    """Return the counts or shares that a provider sent, by its own recording, in order."""
    numbers: list[int] = []
    for crossing in run.crossings(name):
        if crossing.sender == name and crossing.receiver == AGENT and crossing.kind == RESPONSE:
            for field, value in crossing.message.ListFields():
                if field.is_repeated and field.message_type is None:
                    numbers += value
    return numbers


def _counts_by_journal(run: AuditedRun, name: str, decision_times: dict[int, list[float]]) -> Any:
    """Count from a journal: at one instant the order is finish, arrival, start, observe."""
    waiting = run.world.scenario.count is CountKind.WAITING
    counts = []
    for episode, times in sorted(decision_times.items()):
        path = journal_path(run.split.folder_of(name), episode)
        rows = [served for served, _ in read_journal(path)]
        arrived = np.sort([row[2] for row in rows])
        left = np.sort([row[3 if waiting else 4] for row in rows])
        counts.append(
            np.searchsorted(arrived, times, "right") - np.searchsorted(left, times, "right")
        )
    return np.concatenate(counts)
