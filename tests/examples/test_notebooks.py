"""The notebooks of `examples/` run, and show what running them gives."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from support import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def kinds_of_output(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Return what each cell of code shows: streams by name, all else by its types."""
    return [
        sorted({str(sorted(output.get("data", [])) or output.name) for output in cell.outputs})
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.filterwarnings("ignore")  # third-party libraries warn about each other
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_was_saved_with_its_outputs(path: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    saved = nbformat.read(path, as_version=4)
    again = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(again, timeout=300, kernel_name="python3", resources=resources).execute()
    assert kinds_of_output(again) == kinds_of_output(saved)
    assert any(kinds_of_output(saved)), "it was saved without its outputs"
    assert "/tmp" not in path.read_text(encoding="utf-8"), "it shows where it was run"


def test_there_are_notebooks():
    assert "bring_your_own_agent" in {path.stem for path in NOTEBOOKS}
