"""The records of a run, written by the participants' own writers from an embedded run."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from pathlib import Path

from support import MemorySink

import fogveil.agent.policies as policies
from fogveil.agent.decision_record import Decision, DecisionRecord, observed_counts
from fogveil.provider_node.journal import Journal
from fogveil.sources.records import ClusterRecords
from fogveil.testbed.engine.embedded import Embedded, take_decisions
from fogveil.testbed.launch.participant_config import Plan, Split
from fogveil.testbed.scenario.world import World
from fogveil.v1.workload_pb2 import Workload


def write_records(world: World, policy: str, folder: Path, processes: int = 2) -> tuple[Split, str]:
    """Write what every participant of a federated run would; return also the run hash."""
    plan = Plan((policy,), secure=False, separate_users=False, source_processes=processes)
    split = Split(world, plan, folder, "5eed")
    chosen, sink = policies.load(policy, world.agent), MemorySink()
    kind = type(chosen)
    engine = Embedded(world, kind.needs, watches_cloud=kind.watches_cloud, sinks=[sink])
    taken = list(take_decisions(engine, chosen))
    run_hash = engine.finish()
    for name in (*split.roster.all,):
        split.folder_of(name).mkdir(parents=True)
    rows, demands = list(zip(*sink.table.values(), strict=True)), world.demands
    record = DecisionRecord(split.folder_of("agent"), 0)
    for (seen, node), row in zip(taken, rows, strict=True):
        demand = demands[seen.job] if demands else None
        facts = seen.job, seen.cluster, seen.category, node, seen.time, float(row[5])
        record.add(Decision(*facts, observed_counts(seen), demand))
    record.close()
    given = dict(enumerate(demands)) if demands else {}
    for node, name in enumerate(world.nodes):
        served = [
            ((int(r[0]), int(r[2]), *map(float, r[5:8])), not isnan(r[9]))
            for r in rows
            if r[3] == node
        ]
        _write_journal(split.folder_of(name), served, given)
    cloud = [
        ((int(r[0]), int(r[2]), *map(float, r[9:12])), not isnan(r[12]))
        for r in rows
        if not isnan(r[9])
    ]
    _write_journal(split.folder_of(world.cloud), cloud, given)
    for name in split.roster.sources:
        mine = [row for row in rows if split.owners[int(row[1])] == name]
        _write_clusters(split.folder_of(name), mine, world, given)
    return split, run_hash


def _write_journal(folder: Path, served: list, demands: dict[int, float]) -> None:
    journal = Journal(folder, 0)
    journal.add([job for job, _ in served], [on for _, on in served], demands)
    journal.close()


def _write_clusters(folder: Path, rows: list, world: World, demands: dict[int, float]) -> None:
    records = ClusterRecords(folder, 0)
    records.emitted(
        Workload(
            job=int(row[0]),
            cluster=int(row[1]),
            category=int(row[2]),
            emitted=row[4],
            demand=demands.get(int(row[0])),
        )
        for row in rows
    )
    records.received((int(row[0]), world.nodes[int(row[3])], float(row[7])) for row in rows)
    fed_back = [row for row in rows if not isnan(row[12])]
    records.received((int(row[0]), world.cloud, float(row[11])) for row in fed_back)
    records.close()


def change(path: Path, edit: Callable[[list[str]], None]) -> None:
    """Change the lines of a record after its header."""
    header, *lines = path.read_text().splitlines()
    edit(lines)
    path.write_text("\n".join([header, *lines, ""]))
