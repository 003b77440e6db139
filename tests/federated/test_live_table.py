"""What a person sees of a federated run while it lasts, and when its disk is full."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from federated_support import make_scenario
from rich.console import Console
from support import ROOT

from fogveil.core.errors import InputError
from fogveil.testbed.launch import live_table
from fogveil.testbed.launch.federated_run import run_federated
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.run_folder import RunFolder


@pytest.mark.parametrize(
    ("policy", "seen"), [("jsq", r"Σq seen \d+$"), ("nearest", "the policy looks at no count$")]
)
def test_the_lines_say_which_counts_the_policy_looks_at(tmp_path, monkeypatch, policy, seen):
    monkeypatch.setattr(live_table, "SECONDS_PER_LINE", 0.0)
    text, shown = io.StringIO(), []
    with live_table.LiveTable(Console(file=text, width=200), 2000.0) as table:

        def watch(testbed, name, report):
            table.watch(testbed, name, report)
            if name == "agent":
                shown.append((report["agent"], table.table()))

        run_federated(make_scenario(), Plan((policy,)), tmp_path / "out", watch)
    lines = text.getvalue().splitlines()
    assert re.search(seen, lines[-1])
    if policy == "jsq":
        assert not any("looks at no count" in line for line in lines)
    status, picture = shown[-1]
    console = Console(file=io.StringIO(), width=200)
    console.print(picture)
    rows = {line.split()[0]: line.split()[-1] for line in console.file.getvalue().splitlines()[1:]}
    if policy == "jsq":
        assert [rows[f"fog-{number}"] for number in (1, 2, 3)] == [str(n) for n in status["counts"]]
    else:
        assert status["counts"] is None
    assert "\x1b" not in (tmp_path / "out" / "testbed.log").read_text()
    narrow = Console(file=io.StringIO(), width=80, no_color=True)
    narrow.print(picture)
    lines = narrow.file.getvalue().splitlines()
    assert len(lines) == 1 + len(rows), "a line is broken at 80 columns"
    assert any(" s left; " in line for line in text.getvalue().splitlines())


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv = ["fogveil", "up", "tiny", "--policy", "jsq", "--broker", "builtin", "--out", sys.argv[2]]
from fogveil.testbed.cli import main
main()
"""


@pytest.mark.parametrize(
    ("limit", "code", "sentence"),
    [
        (300, 2, "identity: cannot be written: File too large; choose another folder"),
        (1700, 3, "broker: cannot be started in .*/participants/broker: File too large"),
    ],
)
def test_a_full_disk_is_one_sentence(tmp_path, limit, code, sentence):
    """A limit on the size of files refuses to write on, as a full disk does."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(limit), str(tmp_path / "run")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert re.search(sentence, done.stderr)
    assert "Traceback" not in done.stderr


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path):
    folder = RunFolder(tmp_path)
    folder.claim()
    folder.close()
    folder._log = Path("/dev/full").open("w")  # noqa: SIM115 (the folder closes it)
    with pytest.raises(InputError, match="testbed.log: cannot be written: No space left on device"):
        folder.log("agent", "a line")
    folder.close()
    assert folder._log.closed
