"""Reports: one file for each kind of result, which holds everything it shows."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from support import make_world
from typer.testing import CliRunner

import fogveil.api as fogveil
from fogveil.core.errors import InputError
from fogveil.testbed.cli.app import app
from fogveil.testbed.page.document import DataTable, Document, Section, render
from fogveil.testbed.page.files import write_page
from fogveil.testbed.page.kinds import KINDS, find_sections, make_document
from fogveil.testbed.scenario import load_scenario


def command(*words: Any) -> str:
    """Run a command, and return what it printed."""
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


def _run(folder: Path) -> None:
    scenario = make_world(disclosure="count", horizon=500).scenario
    fogveil.run(scenario, "jsq", out=folder)


def _comparison(folder: Path) -> None:
    command("compare", "tiny", "--policies", "jsq,setr", "--seeds", 2, "--out", folder)


def _sweep(folder: Path) -> None:
    file = folder.with_suffix(".toml")
    file.write_text(
        'scenario = "tiny"\npolicies = ["jsq", "random"]\nseeds = [1, 2]\n'
        "[grid]\nrate = [60, 90]\nhorizon = [500]\n"
    )
    command("sweep", file, "--out", folder, "--workers", 1)


def _training(folder: Path) -> None:
    values = folder.with_suffix(".toml")
    values.write_text("training_steps = 60\nbuffer_capacity = 200\n")
    words = ("train", "tiny", "--agent", "parl", "--hyperparameters", values, "--seed", 1)
    command(*words, "--disclosure", "total", "--out", folder)


def _leakage(folder: Path) -> None:
    words = ("leakage", "tiny", "--decisions", 64, "--permutations", 1, "--out", folder)
    command(*words)


def _audit(folder: Path) -> None:
    folder.mkdir()
    finding = {
        "promise": "wire: <only> listed fields cross",
        "verdict": "FAIL",
        "evidence": "1 found \x1b[31m",
        "details": ["field 7 & more"],
    }
    kept = {
        "scenario": "tiny",
        "levels": ["count"],
        "facts": {"scenario": "tiny"},
        "findings": [finding],
        "not_examined": ["heat"],
        "provenance": {"command": "fogveil audit tiny"},
    }
    (folder / "audit.json").write_text(json.dumps(kept))


MAKE = {
    "run": _run,
    "comparison": _comparison,
    "sweep": _sweep,
    "training": _training,
    "leakage": _leakage,
    "audit": _audit,
}
SAYS = {
    "run": "Fog loop over simulated time",
    "comparison": "± 95 % over 2 seeds",
    "sweep": "Mean Fog loop over rate",
    "training": "mean of the last 10",
    "leakage": "mean error of",
    "audit": "1 promises are broken.",
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_becomes_one_file_without_addresses(
    kind: str, tmp_path: Path, page: Page
) -> None:
    folder = tmp_path / kind
    MAKE[kind](folder)
    out = tmp_path / "report.html"
    assert f"written: {out}" in command("report", folder, "--out", out)
    html = out.read_text()
    assert SAYS[kind] in html
    assert out.stat().st_mode & 0o077 == 0
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", html)
    assert "\x1b" not in html
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(out.as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    commands = page.eval_on_selector_all("figcaption code", "all => all.map(e => e.textContent)")
    assert all(commands)
    assert commands or kind == "audit"
    listings = page.eval_on_selector_all("summary", "all => all.map(e => e.textContent)")
    assert kind == "audit" or any(text.startswith("scenario (TOML") for text in listings)
    facts = page.eval_on_selector_all(".facts th", "all => all.map(e => e.textContent)")
    assert {"commit", "command"} <= set(facts)


def test_the_scenario_of_a_report_runs_again(tmp_path: Path) -> None:
    _run(tmp_path / "run")
    (section,) = find_sections(tmp_path / "run")
    (listing,) = [part.text for part in section.parts if part.kind == "listing"]
    (tmp_path / "again.toml").write_text(listing)
    again = load_scenario(tmp_path / "again.toml")
    assert again == make_world(disclosure="count", horizon=500).scenario
    assert tomllib.loads(listing)["name"] == "tiny"


def test_tables_sort_and_copy(tmp_path: Path, page: Page) -> None:
    rows = [("b, c", "10 ±1"), ("a", "–"), ('d"', "9.5 ±2"), ("e_f", "1,200")]
    document = Document("x", [Section("y", [DataTable("t", ("name", "mean"), rows)])])
    write_page(document, tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    column = "all => all.map(row => row.cells[0].textContent)"
    page.click("text=mean")
    assert page.eval_on_selector_all("tbody tr", column) == ['d"', "b, c", "e_f", "a"]
    page.click("text=mean")
    assert page.eval_on_selector_all("tbody tr", column) == ["a", "e_f", "b, c", 'd"']
    page.click("text=name")
    table = "document.querySelector('table')"
    assert page.evaluate(f"asCsv({table})").splitlines() == [
        *("name,mean", "a,–", '"b, c",10 ±1', '"d""",9.5 ±2', 'e_f,"1,200"')
    ]
    latex = page.evaluate(f"asLatex({table})")
    assert r"e\_f & 1,200 \\" in latex
    assert r"b, c & 10 $\pm$1 \\" in latex
    assert latex.count(r"\\") == 5


def test_texts_of_participants_are_shown_as_text() -> None:
    html = render(Document("<b>", [Section("s", [DataTable("", ("<i>",), [("<script>",)])])]))
    assert "<b>" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: folder.rmdir(), "is not a folder"),
        (lambda folder: None, "holds no result"),
        (lambda folder: (folder / "run.json").write_text("{"), "cannot be read as JSON"),
        (lambda folder: (folder / "run.json").write_text("{}"), "the run in it cannot be shown"),
    ],
)
def test_what_is_no_result_is_refused(
    spoil: Callable[[Path], object], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    spoil(tmp_path / "folder")
    with pytest.raises(InputError, match=sentence):
        make_document([tmp_path / "folder"])
