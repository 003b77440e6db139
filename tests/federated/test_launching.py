"""The pieces of launching, without a testbed: output, exit codes, failures, folders."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fogveil.core.errors import InfrastructureError, InputError
from fogveil.testbed.launch.docker.container import FrameDecoder
from fogveil.testbed.launch.interface import OutputLine
from fogveil.testbed.launch.local_launcher import READ_WITHIN, LocalProcess
from fogveil.testbed.launch.output_reader import OutputReader
from fogveil.testbed.launch.participants import Participant, explain_failure
from fogveil.testbed.launch.run_folder import RunFolder

# --- output ----------------------------------------------------------------------------------


@pytest.fixture
def reader():
    output = OutputReader()
    yield output
    output.close()


@pytest.fixture
def start(reader):
    """Starts a process whose standard output is read."""
    with ExitStack() as stack:

        def start(code: str) -> LocalProcess:
            process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
            stack.callback(process.stdout.close)
            reader.add("somebody", process.stdout, lambda chunk: (("stdout", chunk),))
            return LocalProcess("somebody", process, reader)

        yield start


def test_an_exit_code_comes_after_all_output(reader, start):
    lines = 20_000
    process = start(f"for number in range({lines}): print('line', number)")
    deadline, read = time.monotonic() + 60, []
    while process.poll() is None:
        assert time.monotonic() < deadline
        read += reader.lines(0.1)
    assert process.poll() == 0
    assert read == [OutputLine("somebody", "stdout", f"line {n}") for n in range(lines)]


def test_a_child_that_keeps_the_pipe_open_does_not_hide_the_end(reader, start):
    code = "import subprocess, sys; subprocess.Popen(['sleep', '10']); sys.exit(7)"
    process = start(code)
    begin = time.monotonic()
    process.wait(60)
    while process.poll() is None:
        list(reader.lines(0.1))
        assert time.monotonic() < begin + 60
    assert process.poll() == 7
    assert reader.is_open("somebody")
    assert time.monotonic() > begin + READ_WITHIN


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=8), st.data())
def test_frames_are_put_together_wherever_they_are_cut(pieces, data):
    raw = b"".join(struct.pack(">BxxxL", stream, len(piece)) + piece for stream, piece in pieces)
    decode, decoded, rest = FrameDecoder(), [], raw
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        decoded += decode(rest[:cut])
        rest = rest[cut:]
    assert decoded == [({1: "stdout", 2: "stderr"}[stream], piece) for stream, piece in pieces]


# --- failures ------------------------------------------------------------------------------------


class Ended:
    """A process that ended, or did not."""

    pid = 1

    def __init__(self, code: int | None) -> None:
        self.code = code

    def poll(self) -> int | None:
        return self.code


def explain(lost=None, *, broker_alive=False, **ended):
    """Explain a failure in which participants ended with (exit code, last error)."""
    everybody = {"clock": (None, ""), "agent": (None, ""), "fog_1": (None, "")} | ended
    participants = {
        name: Participant(name, "agent", Ended(code), last_error=error)
        for name, (code, error) in everybody.items()
    }
    return explain_failure(participants, lost, broker_alive=broker_alive)


def test_a_refused_configuration_explains_everything_else():
    error = explain(clock=(3, "fog_1 was lost"), fog_1=(2, "config.json: expected the keys"))
    assert isinstance(error, InputError)
    assert str(error) == "fog_1: config.json: expected the keys"


def test_the_clock_names_whom_it_lost_and_the_lost_one_says_why():
    error = explain("fog_1", clock=(3, "fog_1 was lost at 3"), fog_1=(3, "its disk is full"))
    assert isinstance(error, InfrastructureError)
    assert str(error) == "fog_1 was lost at 3; its last words: its disk is full"


@pytest.mark.parametrize("code", [None, 0, -9])
def test_who_did_not_fail_by_itself_has_no_last_words(code):
    error = explain("fog_1", clock=(3, "fog_1 was lost at 3"), fog_1=(code, "INFO: serving"))
    assert str(error) == "fog_1 was lost at 3"


def test_a_broker_that_runs_has_closed_a_connection():
    lost = "the broker was lost at 3"
    assert "connects with that" in str(explain("broker", clock=(3, lost), broker_alive=True))
    assert str(explain("broker", clock=(3, lost), broker_alive=False)) == lost


def test_without_its_clock_everybody_names_the_clock():
    error = explain(
        clock=(-9, ""), agent=(3, "fog_1 does not answer"), fog_1=(3, "the clock was lost at 3")
    )
    assert str(error) == "the clock was lost at 3"


def test_a_crash_shows_its_exit_code():
    assert "agent failed with exit code 1: KeyError: 3" in str(explain(agent=(1, "KeyError: 3")))
    assert "it wrote nothing" in str(explain(agent=(-11, "")))
    assert "ended before every participant had joined" in str(explain())


# --- folders -------------------------------------------------------------------------------------


def test_results_of_an_earlier_run_are_removed_and_other_files_stay(tmp_path: Path):
    for name in ("participants/fog-1/journal-0000.csv", "episode-0003/run.json", "notes/mine.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old")
    for name in ("run.json", "jobs.parquet", "testbed.log"):
        (tmp_path / name).write_text("old")
    folder = RunFolder(tmp_path)
    folder.claim()
    folder.log("clock", "hello")
    folder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "testbed.log"]
    assert "old" not in (tmp_path / "testbed.log").read_text()


def test_a_folder_of_participants_that_no_run_left_is_not_touched(tmp_path: Path):
    (tmp_path / "participants").mkdir()
    (tmp_path / "participants" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not the folder of an earlier run: choose another --out"):
        RunFolder(tmp_path).claim()
    assert (tmp_path / "participants" / "thesis.txt").read_text() == "mine"
    assert not (tmp_path / "testbed.log").exists()


def test_a_folder_belongs_to_one_testbed_at_a_time(tmp_path: Path):
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    first.claim()
    first.log("clock", "first")
    with pytest.raises(InputError, match="another testbed is running in this folder"):
        second.claim()
    second.close()
    first.close()
    assert "first" in (tmp_path / "testbed.log").read_text()
    second.claim()
    second.close()
