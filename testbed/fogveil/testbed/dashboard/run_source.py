"""The records of one run, finished or running, as a timeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fogveil.agent.decision_record as decision_record
import fogveil.provider_node.journal as journal
from fogveil.core.errors import InputError
from fogveil.core.files import write_private
from fogveil.protocol.identity import AGENT
from fogveil.testbed.dashboard.tails import RecordTail
from fogveil.testbed.dashboard.timeline import CLOUD_COLUMNS, COLUMNS, Mark, Timeline
from fogveil.testbed.launch.run_folder import PARTICIPANTS, is_running
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.event_text import event_text
from fogveil.testbed.scenario.world import build_world

STARTED = "started.json"
"""What the launcher says of a testbed that it starts, scenario and policy: private, as run.json."""
MARKS = "marks"
"""The key, there and in run.json, of what happens in the run: pairs of a time and a text."""
Seen = tuple[int, ...] | None
"""The counts that a decision's policy was shown, or the total alone; None is nothing."""


def announce(folder: Path, scenario: Scenario, policy: str, marks: Sequence[Mark] = ()) -> None:
    """Keep what a running testbed runs, for a page that is opened meanwhile."""
    content = {"scenario": scenario.model_dump(mode="json"), "policy": policy, MARKS: marks}
    write_private(folder / STARTED, json.dumps(content))


class RunSource:
    """One run, by its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        described = self._described()
        self.result: dict[str, Any] | None = None
        """The content of run.json, once the run is complete."""
        self.policy: str = described["policy"]
        self.label: str = described.get("label", self.policy)
        self.world = build_world(load_scenario(described["scenario"]))
        self.marks = _marks_of(described, self.world.scenario)
        """What happens in the run, in the order of time; private, as a change of speed is."""
        self.timeline = Timeline()
        self.seen: list[Seen] = []
        """What was shown at each decision."""
        names = (*self.world.nodes, self.world.cloud)
        participants = folder / PARTICIPANTS
        self._decisions = RecordTail(
            decision_record.record_path(participants / AGENT, 0), decision_record.HEADER
        )
        self._journals = {
            name: RecordTail(journal.journal_path(participants / name, 0), journal.HEADER)
            for name in names
        }
        self._pending: dict[int, tuple[float, float]] = {}
        """Jobs that a provider has recorded and whose decision was not read yet."""
        self._last_finish = dict.fromkeys(self.world.nodes, 0.0)
        self.update()

    def _described(self) -> dict[str, Any]:
        for name in ("run.json", STARTED):
            with suppress(FileNotFoundError, NotADirectoryError):
                try:
                    found: dict[str, Any] = json.loads(
                        (self.folder / name).read_text(encoding="utf-8")
                    )
                    found["scenario"], found["policy"]
                except (OSError, ValueError, KeyError, TypeError) as error:
                    if isinstance(error, FileNotFoundError | NotADirectoryError):
                        raise
                    raise InputError(f"{self.folder / name}: is not a run of fogveil") from error
                return found
        raise InputError(
            f"{self.folder}: no run is here; give the --out folder of `fogveil run` or `fogveil up`"
        )

    @property
    def complete(self) -> bool:
        """Whether the run is over and its records are joined."""
        return self.result is not None

    @property
    def recorded(self) -> Path:
        """Where participants keep what crossed."""
        return self.folder / PARTICIPANTS

    @property
    def running(self) -> bool:
        """Whether a testbed runs in the folder."""
        return is_running(self.folder)

    def update(self) -> None:
        """Read what was added since the last time."""
        if self.complete:
            return
        if (self.folder / "run.json").exists():
            self._read_joined()
            return
        for cells in self._decisions.read_new():
            job, cluster, category, node = map(int, cells[:4])
            self.timeline.add(job, cluster, category, node, float(cells[4]), float(cells[5]))
            self.seen.append(tuple(map(int, cells[7].split())) or None)
            if job in self._pending:
                self._serve(job, *self._pending.pop(job))
        for name in self.world.nodes:
            for cells in self._journals[name].read_new():
                started, finished = float(cells[3]), float(cells[4])
                self._last_finish[name] = max(self._last_finish[name], finished)
                self._serve(int(cells[0]), started, finished)
        if self.timeline.size:
            self.timeline.front = max(self.timeline.front, float(self.timeline.time("emitted")[-1]))

    def _serve(self, job: int, started: float, finished: float) -> None:
        known = self.timeline.cluster_and_category(job)
        if known is None:
            self._pending[job] = started, finished
            return
        node = self.timeline.node_of(job)
        down = self.world.paths_over_time.at(finished).down[known[0]][known[1]][node]
        self.timeline.served(job, started, finished, down)

    def _read_joined(self) -> None:
        """Take the joined records, which are those that everything else is computed from."""
        try:
            result = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
            jobs = pq.read_table(self.folder / "jobs.parquet")
            decisions = pq.read_table(self.folder / "decisions.parquet")
        except (OSError, ValueError, pa.ArrowException) as error:
            raise InputError(
                f"{self.folder}: the run's tables are missing; keep them with --out"
            ) from error
        names: dict[str, Sequence[str]] = {
            "cluster": self.world.clusters,
            "category": self.world.categories,
            "node": self.world.nodes,
        }
        columns: dict[str, Any] = {"job": jobs["job"].to_numpy()}
        for name, order in names.items():
            place = {each: number for number, each in enumerate(order)}
            columns[name] = [place[each] for each in jobs[name].to_pylist()]
        for name in (*COLUMNS, *CLOUD_COLUMNS):
            columns[name] = jobs[name].to_numpy()
        self.timeline.fill(columns)
        queued, total = decisions["queued"].to_pylist(), decisions["total_queued"].to_pylist()
        self.seen = [
            tuple(-1 if each is None else each for each in row)
            if row is not None
            else (None if number is None else (number,))
            for row, number in zip(queued, total, strict=True)
        ]
        self.result = result
        if MARKS in result:
            self.marks = _marks_of(result, self.world.scenario)


def _marks_of(described: dict[str, Any], scenario: Scenario) -> list[Mark]:
    """Return the marks of a run's description, its events, and the end of its workloads."""
    try:
        marks = [Mark(float(time), str(text)) for time, text in described.get(MARKS) or ()]
    except (TypeError, ValueError) as error:
        raise InputError(f"{MARKS}: expected pairs of a time and a text") from error
    events = [Mark(each.at, each.what) for each in map(event_text, scenario.events)]
    return sorted([*marks, *events, Mark(scenario.horizon, "the sources stop")])
