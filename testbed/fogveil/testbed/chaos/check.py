"""What must hold after a run, whatever happened in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fogveil.provider_node.journal import journal_path, read_journal_lines
from fogveil.testbed.launch.participant_config import Split
from fogveil.testbed.records.reference import emitted_workloads
from fogveil.testbed.scenario.world import World

PARTS = ("*.part", "*.tmp")
"""Files that are there only while another one is being replaced."""
SHOWN = 5
"""Names or numbers that a sentence names at most."""


def served_once(world: World, split: Split) -> list[str]:
    """Return what the joined records say against every workload being served exactly once."""
    expected = {workload.job for workload in emitted_workloads(world)}
    times: Counter[int] = Counter()
    passed_on: Counter[int] = Counter()
    for name in split.roster.fogs:
        for line in read_journal_lines(journal_path(split.folder_of(name), 0)):
            times[line.served[0]] += 1
            if line.passed_on:
                passed_on[line.served[0]] += 1
    cloud = split.folder_of(split.roster.cloud)
    at_cloud = Counter(line.served[0] for line in read_journal_lines(journal_path(cloud, 0)))
    faults = []
    if never := expected - times.keys():
        faults.append(f"never served: {_some(never)}")
    if foreign := times.keys() - expected:
        faults.append(f"served and never emitted: {_some(foreign)}")
    if often := [job for job, number in times.items() if number > 1]:
        faults.append(f"served more than once: {_some(often)}")
    if at_cloud != passed_on:
        faults.append(f"not served once by the Cloud: {_some((at_cloud - passed_on) or passed_on)}")
    return faults


def temporary_files(folder: Path) -> list[str]:
    """Return the files of a run that should have been there for moments only."""
    found = [path for pattern in PARTS for path in folder.rglob(pattern)]
    return sorted(str(path.relative_to(folder)) for path in found)


def _some(items: Iterable[int]) -> str:
    chosen = sorted(items)
    more = f" and {len(chosen) - SHOWN} more" if len(chosen) > SHOWN else ""
    return ", ".join(map(str, chosen[:SHOWN])) + more
