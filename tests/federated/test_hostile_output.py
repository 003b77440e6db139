"""What a participant writes controls no terminal, fills no memory or disk, crashes no launcher."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
from federated_support import fogveil, make_scenario, plain
from rich.console import Console
from support import SCENARIOS, make_world

import fogveil.testbed.launch.output_reader as output_reader
import fogveil.testbed.launch.policy_requirements as policy_requirements
import fogveil.testbed.launch.run_folder as run_folder
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.core.safe_text import safe_lines, safe_text
from fogveil.testbed.cli.options import print_line
from fogveil.testbed.launch.interface import OutputLine
from fogveil.testbed.launch.output_reader import OutputReader
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.policy_requirements import requirements_of
from fogveil.testbed.launch.reports import parse_report
from fogveil.testbed.launch.run_folder import LOG, RunFolder
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.privacy.audit.findings import judge
from fogveil.testbed.privacy.inspect import console as inspect_console
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.world import build_world

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u200b\ufeff\ud800\x7f\r"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u200b\ufeff\ud800\x7f\r"


# --- one function for text of unknown origin ------------------------------------------------------


def test_what_controls_a_terminal_is_shown_as_escapes():
    assert safe_text(ATTACK) == SHOWN
    assert safe_text("Σq, β = 3\tπ 漢字 🙂") == "Σq, β = 3\tπ 漢字 🙂"
    assert safe_text("one\ntwo\u2028three") == r"one\ntwo\u2028three"
    assert safe_lines(f"one\n{ATTACK}") == f"one\n{SHOWN}"
    long = safe_text("\x00" * 10**6)
    assert len(long) < 5000
    assert long.endswith("(1,000,000 characters)")


def test_everything_that_is_printed_passes_through_it(capsys):
    text = ATTACK.replace("\ud800", "")
    print_line(text, Console(force_terminal=True))
    inspect_console.print_line(Console(force_terminal=True), text)
    inspect_console.print_table(Console(force_terminal=True), ("column",), [(text,)])
    printed = plain(capsys.readouterr().out)
    assert printed.count(r"\x1b]0;owned\x07") == 3
    assert not any(character in printed for character in "\x1b\x07\x9b\u202e\u200b\r")
    finding = judge("a promise", "", [text], 1, details=(text,))
    assert safe_text(finding.evidence) == finding.evidence
    assert all(safe_text(line) == line for line in finding.details)


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\n", "\u202ea", "a b", "[red]a", "a" * 65])
def test_names_in_scenarios_are_words(name):
    with pytest.raises(InputError, match="name"):
        load_scenario(SCENARIOS / "tiny.toml", {"name": name})


# --- output without end ---------------------------------------------------------------------------


@contextmanager
def pipe_to(reader: OutputReader, name: str = "fog-1"):
    """Yield a function that writes as a participant, and returns the lines that were read."""
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as stream, os.fdopen(sink, "wb", buffering=0) as target:
        reader.add(name, stream, lambda chunk: (("stderr", chunk),))

        def write(data: bytes) -> list[OutputLine]:
            target.write(data)
            return list(reader.lines(5.0))

        yield write


def test_a_line_without_end_does_not_grow_in_memory():
    """The first version kept all of it: one participant could fill the launcher's memory."""
    reader, piece = OutputReader(), b"x" * 2**15
    with pipe_to(reader) as write:
        for _ in range(64):  # 2 MiB
            assert write(piece) == []
        kept = sum(map(len, reader._partial.values()))
        assert kept <= output_reader.LONGEST_LINE
        (cut, following) = write(b"\nnext\n")
    assert len(cut.text) == output_reader.LONGEST_LINE
    assert following.text == "next"
    reader.close()


def test_lines_without_end_do_not_fill_the_disk(tmp_path, monkeypatch):
    """The first version wrote all of them to the log."""
    monkeypatch.setattr(run_folder, "LOG_SHARE", 10_000)
    folder = RunFolder(tmp_path)
    folder.claim()
    for _ in range(1000):
        folder.log("fog-1", f"{ATTACK} and so on")
    folder.log("fog-2", "an honest line")
    folder.close()
    lines = (tmp_path / LOG).read_text().splitlines()
    assert sum(map(len, lines)) < 30_000
    assert "fog-1 has written too much" in lines[-2]
    assert "an honest line" in lines[-1]
    assert safe_text("".join(lines), None) == "".join(lines)


# --- reports --------------------------------------------------------------------------------------

POSITION = {"episode": 0, "time": 1.5, "decisions": 3, "placed": [1, 2]}
FIGURES = {"episode": 0, "phase": "training", "decisions": 9, "training_steps": 2}
FIGURES |= {"epsilon": 0.5, "loss": float("nan"), "returned": -3.0, "cpu_seconds": 0.1}


@pytest.mark.parametrize(
    ("role", "report"),
    [
        ("clock", {"listening": 4711}),
        ("clock", {"joined": "fog-1"}),
        ("clock", {"lost": "fog-1"}),
        ("clock", {"refused": "nobody"}),
        ("clock", {"over": 3}),
        ("clock", {"clock": POSITION}),
        ("provider", {"listening": None}),
        ("cloud", {"listening": 4711}),
        ("agent", {"episode": FIGURES}),
    ],
)
def test_an_honest_report_is_read_as_it_is(role, report):
    assert json.dumps(parse_report("x", role, json.dumps(report))) == json.dumps(report)


def test_a_line_that_is_no_report_is_text():
    for line in ("", "hello", "3", "[1]", "{", '{"a":' * 100_000, "[" * 100_000, "1" * 10_000):
        assert parse_report("fog-1", "provider", line) is None


@pytest.mark.parametrize(
    ("role", "report"),
    [
        ("provider", '{"listening": "x"}'),
        ("provider", '{"listening": true}'),
        ("provider", '{"listening": -1}'),
        ("provider", '{"listening": 1e400}'),
        ("provider", '{"listening": [[[[]]]]}'),
        ("provider", '{"joined": "fog-2"}'),
        ("cloud", '{"lost": "agent"}'),
        ("agent", '{"clock": {"time": 3}}'),
        ("agent", '{"agent": null}'),
        ("agent", '{"agent": {"decisions": 1, "queued": "\\u001b[2J"}}'),
        ("agent", '{"agent": {"decisions": ' + "9" * 400 + ', "queued": 0}}'),
        ("agent", '{"agent": {"decisions": 1, "queued": 0, "phase": "' + "x" * 99 + '"}}'),
        ("agent", '{"episode": {"episode": 0}}'),
        ("sources", '{"listening": 5}'),
        ("clock", '{"joined": 3}'),
        ("clock", '{"over": NaN}'),
        ("clock", '{"clock": {"episode": 0, "time": NaN, "decisions": 0, "placed": []}}'),
        ("clock", '{"\\u001b[2J": 1}'),
    ],
)
def test_an_invalid_report_names_its_sender(role, report):
    """In the first version each of these was believed, or was a traceback of the launcher."""
    with pytest.raises(InfrastructureError, match="^fog-1 sent the launcher an invalid report: "):
        parse_report("fog-1", role, report)
    with pytest.raises(InfrastructureError) as error:
        parse_report("fog-1", role, report)
    assert safe_text(str(error.value)) == str(error.value)


class Scripted:
    """Stands for a launcher whose participants write certain lines."""

    def __init__(self, *lines: OutputLine) -> None:
        self._lines = lines

    def events(self, _timeout: float) -> tuple[OutputLine, ...]:
        return self._lines

    def start(self, *_arguments: object) -> Scripted:
        return self

    pid = 1


def handle(folder: Path, role: str, *texts: str) -> Testbed:
    """Return a testbed that has read lines of a participant's standard output."""
    lines = [OutputLine("x", "stdout", text) for text in texts]
    plan = Plan(("random",))
    testbed = Testbed(build_world(make_scenario()), plan, folder, Scripted(*lines))  # type: ignore[arg-type]
    testbed._folder.claim()
    testbed._split = type("Split", (), {"users": {}})  # type: ignore[assignment]
    try:
        testbed._start_participant("x", role, Path())
        testbed._handle_events(0.0)
    finally:
        testbed._folder.close()
    return testbed


def test_only_the_clock_can_say_who_joined_and_of_whom_there_is(tmp_path):
    """In the first version `joined: "nobody"` was a KeyError."""
    with pytest.raises(InfrastructureError, match=r"x reported that '\\x1bnobody' has joined"):
        handle(tmp_path, "clock", '{"joined": "\\u001bnobody"}')
    assert handle(tmp_path, "clock", '{"joined": "x"}').participants["x"].state == "joined"
    with pytest.raises(InfrastructureError, match="x sent the launcher an invalid report: joined"):
        handle(tmp_path, "agent", '{"joined": "x"}')


def test_reports_without_end_name_their_sender(tmp_path):
    """The first version kept them all in memory, for as long as the testbed started."""
    with pytest.raises(InfrastructureError, match="x sent the launcher a report when 10,000 were"):
        handle(tmp_path, "clock", *['{"over": 1}'] * 10_001)


# --- a policy, before and during a run ------------------------------------------------------------

INSPECTED = """
import os, sys
from fogveil.agent.policy import Policy
{body}
class P(Policy):
    def place(self, seen):
        return 0
"""


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (r"raise ValueError('\x1b[2J\u202e')", r"ValueError: \\x1b\[2J\\u202e"),
        ("for fd in range(3, 20):\n  try: os.write(fd, b'\\xff' * 2**20)\n  except OSError: pass",
         "its process ended with code"),
        ("""for fd in range(3, 20):
  try: os.write(fd, b'{"needs": "all", "ahead": 3}\\n')
  except OSError: pass""", "its process ended with code"),
        ("""for fd in range(3, 20):
  try: os.write(fd, b'[' * 50000 + b'\\n')
  except OSError: pass""", "its process ended with code"),
    ],
)  # fmt: skip
def test_an_answer_that_a_policy_forges_is_refused(tmp_path, monkeypatch, body, sentence):
    """The first version printed escapes, and had tracebacks for what is no answer."""
    monkeypatch.setattr(policy_requirements, "END_WITHIN", 0.1)
    (tmp_path / "mine.py").write_text(INSPECTED.format(body=body))
    with pytest.raises(InputError, match=sentence):
        requirements_of(f"{tmp_path}/mine.py:P", make_world())


HOSTILE = """
import os, sys
from fogveil.agent.policy import Policy
from fogveil.protocol import participant

class P(Policy):
    def place(self, seen):
        print("\\x1b]0;owned\\x07\\u202e in the log", file=sys.stderr, flush=True)
        if seen.job == 5:
            {body}
        return 0
"""


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            r"""os.write(2, b"program: \x1b]0;owned\x07 last \xe2\x80\xae words\n"); os._exit(3)""",
            r"its last words: \x1b]0;owned\x07 last \u202e words",
        ),
        (
            """participant.report(joined="nobody"); import time; time.sleep(60)""",
            "agent sent the launcher an invalid report: joined: Extra inputs are not permitted",
        ),
    ],
)
def test_a_run_ends_with_a_sentence_that_is_safe_to_read(tmp_path, body, sentence):
    (tmp_path / "mine.py").write_text(HOSTILE.format(body=body))
    out = tmp_path / "out"
    words = ("--policy", f"{tmp_path}/mine.py:P", "--broker", "builtin", "--out", out)
    done = fogveil("run", "tiny", "--federated", "--disclosure", "none", *words)
    assert done.returncode == 3, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    log = (out / LOG).read_text()
    assert r"\x1b]0;owned\x07\u202e in the log" in log
    for text in (done.stdout, done.stderr, log):
        assert not any(character in text for character in "\x1b\x07\u202e")
