"""One episode of the agent: its windows of decisions and the disclosures that they wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from fogveil.agent.boundary_client import BoundaryClient
from fogveil.agent.core import DecisionCore
from fogveil.agent.decision_record import UNSEEN, DecisionRecord
from fogveil.agent.marks import Marks
from fogveil.agent.policy import AgentView, LatencyChange, Policy
from fogveil.agent.share_sum import ShareSum
from fogveil.agent.visibility import Disclosed, Visibility
from fogveil.core.disclosure import Level
from fogveil.core.errors import InfrastructureError
from fogveil.v1.clock_pb2 import LOOK_AFTER, LOOK_BEFORE, LOOK_NEVER, AgentReady
from fogveil.v1.workload_pb2 import Placement, Placements, Workload

WINDOW = 64
"""Decisions taken ahead where nothing else limits them."""
WINDOWS_AHEAD = 2
"""Windows that a policy which does not train may decide before their counts arrive."""


class Episode:
    """Decides the workloads of one episode and records the decisions."""

    def __init__(
        self,
        number: int,
        view: AgentView,
        policy: Policy,
        boundary: BoundaryClient,
        marks: Marks,
        folder: Path,
        *,
        window: int,
        training_limits: tuple[int, int] | None,
        latencies: Sequence[LatencyChange] = (),
    ) -> None:
        """Begin an episode.

        `window` is the number of decisions per window, 0 to let the policy determine it;
        `training_limits` are the `ahead_limits` of a policy in training.
        """
        self._number, self._view, self._boundary, self._marks = number, view, boundary, marks
        self._record = DecisionRecord(folder, number)
        self._core = DecisionCore(view, policy, self._record.add, latencies, self._accuse)
        self._windows_ahead = WINDOWS_AHEAD if training_limits is None else 0
        self._undisclosed: deque[int] = deque()
        """Sizes of the windows that were decided and whose disclosures have not come yet."""
        visibility = self._core.visibility
        self.watched = () if visibility.level is Level.NONE else view.nodes
        """The providers whose counts the policy needs."""
        if visibility.needs_cloud:
            self.watched += (view.cloud,)
        self._watchable = self.watched
        self._share_sum = ShareSum()
        self._taking = self._telling = frozenset(range(len(view.nodes)))
        """The nodes that take jobs, and that tell their counts, by the scenario."""
        self._silent: frozenset[int] = frozenset()
        """The nodes that tell no count, or whose counts are not read."""
        self._sent = [0] * len(view.nodes)
        """Messages to each provider so far."""
        self.queued: int | None = None
        """Queued jobs at the watched providers by the last disclosure."""
        self.counts: list[int] | None = None
        """The same by provider, where the agent is told so much."""
        self.ready = plan_windows(
            visibility, window, training_limits, ahead=self._core.decides_ahead
        )
        self.ready.marked.extend(marks.numbers)
        self._settle_members()

    async def decide(self, workloads: list[Workload]) -> dict[int, Placements]:
        """Return the placements of a window's workloads, one message per node that gets any."""
        disclosed: list[Disclosed | None] = [None] * len(workloads)
        if self.ready.look == LOOK_BEFORE:
            disclosed = [*await self._disclosed_now(workloads)]
        elif self.ready.look == LOOK_AFTER:
            await self.catch_up(self._windows_ahead)
            self._undisclosed.append(len(workloads))
        batches: dict[int, list[Placement]] = {}
        for workload, row in zip(workloads, disclosed, strict=True):
            node, placement = self._core.place(workload, row)
            batches.setdefault(node, []).append(placement)
        return {node: self._message(node, batch) for node, batch in batches.items()}

    def _message(self, node: int, batch: list[Placement]) -> Placements:
        self._sent[node] += 1
        return Placements(episode=self._number, sequence=self._sent[node], placements=batch)

    async def change_members(self, available: Sequence[int], telling: Sequence[int]) -> None:
        """Go on with other members, once all counts of the ones before have come."""
        await self.catch_up()
        self._taking, self._telling = frozenset(available), frozenset(telling)
        self._settle_members()

    def _accuse(self, name: str, why: str) -> None:
        self._marks.add(name, why)
        self._settle_members()

    def _settle_members(self) -> None:
        """Go by who takes jobs, who tells its count, and who is marked."""
        nodes, marked = range(len(self._view.nodes)), set(self._marks.numbers)
        available = tuple(node for node in nodes if node in self._taking and node not in marked)
        if marked and not available:
            names = ", ".join(sorted(self._marks.names))
            raise InfrastructureError(f"nobody takes jobs but those that are marked: {names}")
        self._core.available = None if len(available) == len(nodes) else available
        self._silent = frozenset(nodes) - (self._telling - marked)
        self.watched = tuple(
            name
            for name in self._watchable
            if name == self._view.cloud or self._view.nodes.index(name) not in self._silent
        )

    async def catch_up(self, windows_ahead: int = 0) -> None:
        """Receive the disclosures of past windows until at most so many are undisclosed."""
        while len(self._undisclosed) > windows_ahead:
            self._core.learn(await self._next_window(self._undisclosed.popleft()))

    async def _disclosed_now(self, workloads: list[Workload]) -> list[Disclosed]:
        rows, marked = await self._next_window(len(workloads)), len(self._marks.names)
        if self._core.visibility.level is Level.FULL:
            loads = [
                await self._boundary.load(self._view.nodes, each, self._silent)
                for each in workloads
            ]
            rows = [row._replace(load=load) for row, load in zip(rows, loads, strict=True)]
            if len(self._marks.names) > marked:
                self._settle_members()
                rows = [row.hiding(self._silent) for row in rows]
        return rows

    async def _next_window(self, size: int) -> list[Disclosed]:
        marked, silent = len(self._marks.names), self._silent
        rows = await self._boundary.window(self.watched, size)
        if len(self._marks.names) > marked:
            self._settle_members()
        if self._view.disclosed is Level.TOTAL:
            totals = self._share_sum.totals(rows)
            self.queued = totals[-1]
            return [Disclosed(total=total) for total in totals]
        if silent:
            rows = [self._with_silent(row, silent) for row in rows]
        told = [count for count in rows[-1] if count != UNSEEN]
        self.queued, self.counts = sum(told), list(rows[-1])
        fogs = len(self._view.nodes)
        return [Disclosed(row[:fogs], row[fogs] if len(row) > fogs else None) for row in rows]

    def _with_silent(self, row: tuple[int, ...], silent: frozenset[int]) -> tuple[int, ...]:
        """Return the counts of all nodes from those that tell theirs."""
        told = iter(row)
        nodes = range(len(self._view.nodes))
        return (*(UNSEEN if node in silent else next(told) for node in nodes), *told)

    def flush(self) -> None:
        """Hand the record to the operating system, so that it survives this process."""
        self._record.flush()

    def close(self) -> None:
        """Close the record."""
        self._record.close()


def plan_windows(
    visibility: Visibility,
    window: int,
    training_limits: tuple[int, int] | None = None,
    *,
    ahead: bool,
) -> AgentReady:
    """Return when a policy looks at what is disclosed, and how many decisions a window has.

    `ahead` says whether it can decide before it looks; the other arguments are those of `Episode`.
    """
    if visibility.level is Level.NONE:
        look = LOOK_NEVER
    elif ahead and window != 1 and visibility.level is not Level.FULL:
        look = LOOK_AFTER  # level full discloses the current instant only
    else:
        look = LOOK_BEFORE
    later = 1 if look == LOOK_BEFORE else window or WINDOW
    first = later
    if look == LOOK_AFTER and training_limits and not window:
        # A window never crosses a change of the weights.
        first, between_steps = training_limits
        later = between_steps or later
        first = first % later or later
    return AgentReady(look=look, cloud=visibility.needs_cloud, first_window=first, window=later)
