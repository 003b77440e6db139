"""The page's state of a run equals the run's records, at every decision and at the end."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from support import make_world

import fogveil.api as fogveil
from fogveil.clock.pace import Pace, PaceOrder
from fogveil.core.errors import InputError
from fogveil.testbed.dashboard.run_source import RunSource
from fogveil.testbed.dashboard.session import Session
from fogveil.testbed.dashboard.timeline import Timeline


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunSource:
    """A run of some hundred jobs under load."""
    folder = tmp_path_factory.mktemp("runs") / "jsq"
    fogveil.run(make_world(disclosure="count", sources__scale=50.0).scenario, "jsq", out=folder)
    return RunSource(folder)


def test_lines_are_those_that_the_policy_was_told(run: RunSource) -> None:
    """At each decision the jobs that wait at a node are as many as its provider said."""
    nodes = len(run.world.nodes)
    for place, now in enumerate(run.timeline.time("emitted")):
        lines = run.timeline.lines(float(now), nodes, 1, most=10**6)
        waiting = [len(each.line) - each.serving for each in lines]
        assert waiting == list(run.seen[place][:nodes])  # type: ignore[index]
        assert all(each.serving <= 1 for each in lines)


def test_the_end_is_the_summary(run: RunSource) -> None:
    assert run.result is not None
    summary = run.result["summary"]
    mean, returned = run.timeline.returned_mean(run.timeline.front)
    assert mean == pytest.approx(summary["fog_loop"], rel=1e-12)
    assert returned == summary["workloads"]
    horizon = run.world.scenario.horizon
    shares = run.timeline.utilisation(horizon, len(run.world.nodes), 1)
    assert shares == pytest.approx([summary["utilisation"][n] for n in run.world.nodes])
    history = run.timeline.history(run.timeline.front, horizon, 50)
    assert history["unserved"][-1] == 0


def test_a_timeline_that_grows_equals_one_that_is_read(run: RunSource) -> None:
    """What is known of a running testbed gives the same state, but for jobs in service."""
    whole, grown = run.timeline, Timeline()
    until = float(whole.time("emitted")[-1])
    columns = [whole.number(name).tolist() for name in ("job", "cluster", "category", "node")]
    for place, row in enumerate(zip(*columns, strict=True)):
        grown.add(*row, *(float(whole.time(name)[place]) for name in ("emitted", "arrived")))
        if (finished := float(whole.time("finished")[place])) <= until:
            down = float(whole.time("returned")[place]) - finished
            grown.served(row[0], float(whole.time("started")[place]), finished, down)
    nodes = len(run.world.nodes)
    for now in np.linspace(0, until, 50):
        assert grown.lines(now, nodes, 1, 99) == whole.lines(now, nodes, 1, 99)
        assert grown.in_system(now, nodes) == whole.in_system(now, nodes)
        assert grown.transit(now, 99) == whole.transit(now, 99)


def test_two_looks_at_once_read_every_line_once(run: RunSource, tmp_path: Path) -> None:
    """The last look of a page that ends may come while another one is under way."""
    session = Session([run.folder])
    order: list[str] = []

    def update() -> None:
        order.append("begins")
        time.sleep(0.05)
        order.append("ends")

    session.runs[0].source.update = update  # type: ignore[method-assign]
    threads = [Thread(target=session.look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order == ["begins", "ends"] * 3


def test_an_empty_timeline_has_a_state() -> None:
    empty = Timeline()
    assert empty.lines(5.0, 2, 1, 9) == [([], 0), ([], 0)]
    assert empty.returned_mean(5.0) == (None, 0)
    assert empty.history(0.0, 100.0, 10)["delay"][-1] is None


def test_runs_of_other_workloads_do_not_stand_side_by_side(run: RunSource, tmp_path: Path) -> None:
    scenario = make_world(disclosure="count", seed=2).scenario
    fogveil.run(scenario, "jsq", out=tmp_path / "other")
    with pytest.raises(InputError, match="has other workloads"):
        Session([run.folder, tmp_path / "other"])
    with pytest.raises(InputError, match="no run is here"):
        Session([tmp_path])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"speed": -1, "held": true}',
        b'{"speed": "x", "held": true}',
        b'{"speed": null}',
        b'{"speed": null, "held": true, "steps": -1}',
        b'{"more": 1}',
    ],
)
def test_other_lines_are_no_orders(line: bytes) -> None:
    assert PaceOrder.parse(line) is None


def test_orders_read_back() -> None:
    for order in (PaceOrder(None, held=False), PaceOrder(2.5, held=True, steps=3)):
        assert PaceOrder.parse(order.line()) == order


async def _passes(pace: Pace, until: float) -> bool:
    import asyncio

    try:
        await asyncio.wait_for(pace.wait(until), 0.05)
    except TimeoutError:
        return False
    return True


def test_a_held_clock_grants_what_it_is_told() -> None:
    import asyncio

    async def check() -> None:
        pace = Pace(None, held=True)
        assert not await _passes(pace, 1.0)
        pace.change(PaceOrder(None, held=True, steps=1))
        assert await _passes(pace, 1.0)
        assert await _passes(pace, 1.0), "of one window"
        assert not await _passes(pace, 2.0)
        pace.change(PaceOrder(None, held=False))
        assert await _passes(pace, 1000.0)

    asyncio.run(check())
