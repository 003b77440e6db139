"""The README: what it shows is what the commands print, and its example runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```\n\$ (fogveil .+)\n((?:.*\n)*?)```", README)
QUICK = [(words, shown) for words, shown in SHOWN if not words.startswith("fogveil compare")]


@pytest.mark.parametrize(("words", "shown"), QUICK, ids=[words for words, _ in QUICK])
def test_commands_print_what_the_readme_shows(words, shown, tmp_path):
    command = shlex.split(words.replace("runs/first", str(tmp_path / "first")))
    command[0] = str(Path(sys.executable).parent / "fogveil")
    environment = {**os.environ, "COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb"}
    if command[1:3] == ["scenario", "show"] and "--as" not in command:
        command += ["--picture", str(tmp_path / "picture")]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    lines = [line.rstrip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    expected = [line for line in shown.splitlines() if line.strip()]
    where = ("written: ", "records: ")  # the test writes elsewhere
    lines = [line for line in lines if not line.startswith(where)]
    assert lines == [line for line in expected if not line.startswith(where)]


def test_the_readme_shows_several_commands():
    assert len(QUICK) >= 5


def test_the_example_policy_runs(tmp_path):
    example = next(
        b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Policy" in b
    )
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    (tmp_path / "my_policy.py").write_text(example)
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "fogveil"), "run"),
            *(str(ROOT / "scenarios" / "paper.toml"), "--json"),
            *("--policy", "my_policy.py:FewestThenNearest", "--horizon", "1000"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"level": "count"' in done.stdout


def test_scenarios_and_files_that_the_readme_names_exist():
    for path in set(re.findall(r"(?:scenarios|docs)/[\w./-]+\.\w+", README)):
        assert (ROOT / path).exists(), path
