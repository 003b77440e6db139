"""What a person does with the page of a recorded run: keys, messages, marks, trainings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import FOGVEIL, wait_for
from playwright.sync_api import Browser, Page
from test_page_access import open_page, request

from fogveil.core.errors import InputError
from fogveil.testbed.dashboard.run_source import MARKS, RunSource
from fogveil.testbed.dashboard.training_source import MOST, TrainingSource

Shown = tuple[str, ...]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a federated run that recorded what crossed."""
    folder = tmp_path_factory.mktemp("runs") / "jsq"
    words = ["run", "tiny", "--policy", "jsq", "--horizon", "400", "--seed", "1", "--federated"]
    words += ["--record", "--broker", "builtin", "--out", str(folder)]
    subprocess.run([*FOGVEIL, *words], check=True, capture_output=True)
    return folder


def inspected(folder: Path) -> set[Shown]:
    """Return the messages that `fogveil inspect` shows: when, to whom, wire form."""
    done = subprocess.run(
        [*FOGVEIL, "inspect", str(folder), "--json"], check=True, capture_output=True, text=True
    )
    return {
        (str(line["simulated"]), line["to"], line["bytes"])
        for line in map(json.loads, done.stdout.splitlines())
        if line["kind"] in ("request", "response", "delivery")
    }


def shown(page: Page) -> list[Shown]:
    """Return the messages that the page shows."""
    script = """all => all.map(li => [String(li.dataset.simulated), li.dataset.to,
        li.dataset.wire.replaceAll(" ", "")])"""
    return [tuple(each) for each in page.eval_on_selector_all(".messages li[data-wire]", script)]


def test_a_step_shows_the_message_that_inspect_shows(
    serve: Callable[..., Any], page: Page, recorded: Path
) -> None:
    """At each step: the placement and the counts of that very decision, byte for byte."""
    known = {(f"{float(when):g}", *rest) for when, *rest in inspected(recorded)}
    decisions = RunSource(recorded)
    times = decisions.timeline.time("emitted")
    page.goto(serve("dashboard", recorded).link)
    wait_for(page, "d.live === 'false'")
    page.focus("body")
    for place in range(5):
        page.keyboard.press("ArrowRight")
        wait_for(page, f"Number(d.time) === {float(times[place])!r}")
        node = decisions.world.nodes[decisions.timeline.number("node")[place]]
        latest = f".messages li[data-to='{node}'][data-simulated='{float(times[place])!r}']"
        page.wait_for_selector(latest)
        now = [(f"{float(when):g}", *rest) for when, *rest in shown(page)]
        assert set(now) <= known
        assert (f"{times[place]:g}", node) in {each[:2] for each in now}


def test_a_message_that_is_read_stands_still(
    serve: Callable[..., Any], page: Page, recorded: Path
) -> None:
    """Its wire form is shown under the mouse or the focus, also while the run goes on."""
    page.goto(serve("dashboard", recorded).link)
    wait_for(page, "d.live === 'false'")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".messages li[data-wire]")
    first = page.locator(".messages li:not([data-wire=''])").first
    assert not first.locator(".wire").is_visible()
    first.hover()
    assert first.locator(".wire").inner_text() == first.get_attribute("data-wire")
    before = shown(page)
    for _ in range(3):
        time = page.evaluate("document.body.dataset.time")
        page.keyboard.press("ArrowRight")
        wait_for(page, f"d.time !== '{time}'")
    page.wait_for_timeout(700)
    assert shown(page) == before
    page.mouse.move(0, 0)
    page.wait_for_timeout(700)
    assert shown(page) != before
    first.focus()
    assert first.locator(".wire").is_visible()


def test_marks_are_on_the_slider_and_private(
    serve: Callable[..., Any], page: Page, recorded: Path, tmp_path: Path
) -> None:
    """What happens in a run is marked, for the experimenter alone: it may be a change of speed."""
    folder = tmp_path / "marked"
    folder.mkdir()
    for file in recorded.glob("*.parquet"):
        (folder / file.name).write_bytes(file.read_bytes())
    record = json.loads((recorded / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, MARKS: [[100, "fog-1 slows down"]]}))
    command = serve("dashboard", folder)
    address = command.link.split("/open/")[0] + open_page(command.link)
    _, agents, _ = request(command.link, _path(address))
    assert "slows" not in agents
    page.goto(address)
    page.wait_for_selector("#marks i", state="attached")
    titles = page.eval_on_selector_all("#marks i", "all => all.map(each => each.title)")
    assert titles == ["fog-1 slows down at 100", "the sources stop at 400"]
    (folder / "run.json").write_text(json.dumps({**record, MARKS: [["x"]]}))
    with pytest.raises(InputError, match="expected pairs of a time and a text"):
        RunSource(folder)


def _path(address: str) -> str:
    return "/" + address.split("/", 3)[3] + "events/agent"


def episode(number: int, phase: str = "training") -> str:
    """Return a line of a training's log."""
    line = {"episode": number, "phase": phase, "decisions": 10 * number, "epsilon": 0.5}
    return json.dumps({**line, "last_returns": -1.0 * number, "loss": 0.1}) + "\n"


def test_a_training_is_followed(serve: Callable[..., Any], page: Page, tmp_path: Path) -> None:
    """Its curves grow as episodes end; a line that is half written waits for its end."""
    log = tmp_path / "episodes.jsonl"
    log.write_text(episode(1, "population") + episode(2) + episode(3)[:20])
    page.goto(serve("dashboard", tmp_path).link)
    page.wait_for_function(
        "() => document.getElementById('training-now').textContent.includes('episode 2')"
    )
    assert "The run is over" not in page.inner_text("body")
    log.write_text(episode(1, "population") + episode(2) + episode(3))
    page.wait_for_function(
        "() => document.getElementById('training-now').textContent.includes('episode 3')"
    )
    assert page.evaluate("charts.epsilon[0].plot.data[0]") == [10, 20, 30]
    assert page.evaluate("charts.curve[0].marks") == [[10, "training begins"]]


def test_a_long_training_keeps_few_points(tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").write_text("".join(map(episode, range(5 * MOST))))
    source = TrainingSource(tmp_path)
    source.update()
    state = source.state()
    assert MOST / 2 <= len(state["decisions"]) <= MOST
    assert state["episodes"] == 5 * MOST
    assert not state["running"]
    (tmp_path / "episodes.jsonl").write_text(episode(7))
    source.update()
    assert source.state()["decisions"] == [70], "a log that begins again"


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(
    serve: Callable[..., Any], browser: Browser, recorded: Path, colours: Any
) -> None:
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, color_scheme=colours, has_touch=True
    )
    page = context.new_page()
    page.goto(serve("dashboard", recorded).link)
    page.wait_for_selector(".messages li")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
