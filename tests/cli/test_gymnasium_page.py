"""docs/gymnasium.md: its examples run one after the other, then its commands; its table holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from documented import FENCED, commands, python_example, read
from federated_support import fogveil

PAGE = "docs/gymnasium.md"
SHORT = {"compare": ("--seeds", "2", "--horizons", "300"), "run": ("--horizon", "300")}


@pytest.mark.filterwarnings("ignore")  # third-party libraries warn about each other
def test_the_examples_and_commands_of_the_page_work(tmp_path, monkeypatch):
    import torch

    torch.set_num_threads(1)  # small matrices
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    examples = [
        block["body"] for block in FENCED.finditer(read(PAGE)) if block["language"] == "python"
    ]
    assert len(examples) > 6
    for example in examples:
        exec(compile(example, PAGE, "exec"), names)
    Path("my_agent.py").write_text(python_example(PAGE, "(VectorPolicy)"), encoding="utf-8")
    shown = commands(PAGE)
    assert [command.name for command in shown] == ["compare", "run", "run"]
    for command in shown:
        done = fogveil(*command.words[1:], *SHORT[command.name], cwd=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", ["none", "total", "count", "full"])
def test_the_table_of_sizes_is_right(level):
    import gymnasium

    options = {"scenario": "paper", "level": level, "reward": "delay"}
    env = gymnasium.make("fogveil.gym:fogveil/Placement-v0", **options)
    view = env.unwrapped.view
    header, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in read(PAGE).splitlines()
        if line.startswith(("| part", "| `", "| size")) and line.count("|") == 8
    )
    counts = {"C": len(view.clusters), "W": len(view.categories), "N": len(view.nodes), "1": 1}
    column = header.index(level)
    documented = {
        row[0].strip("`"): counts[row[1]] for row in rows if row[1] and row[column] == "✓"
    }
    parts = env.unwrapped.vectors.parts
    assert {name: part.stop - part.start for name, part in parts.items()} == documented
    assert list(parts) == list(documented)
    size = rows[-1][column].replace("2N", "2 * N").replace("4N", "4 * N")
    assert eval(size, {}, counts) == np.prod(env.observation_space.shape)
