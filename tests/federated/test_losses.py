"""Whoever is lost, the testbed ends by itself, names who it was, and leaves only its records."""

from __future__ import annotations

import json
import os
import signal

import pytest
from federated_support import (
    GONE_WITHIN,
    PATIENCE,
    Up,
    embedded_hash,
    ending,
    fogveil,
    make_scenario,
    processes_of,
    started,
    wait_until,
)
from support import ROOT

TINY = ROOT / "scenarios/tiny.toml"


def sentence_of(victim: str) -> str:
    who = f"the {victim}" if victim in ("agent", "broker", "clock") else victim
    return f"fogveil: {who} was lost at simulated time"


def check_loss(up: Up, victim: str) -> None:
    code, error = up.wait_until_gone()
    assert code == 3, (victim, error)
    assert "Traceback" not in error + up.log, victim
    (sentence,) = [line for line in error.splitlines() if line.startswith("fogveil: ")]
    assert sentence.startswith(sentence_of(victim)), sentence
    up.check_nothing_is_left()
    up.check_records()


@pytest.mark.parametrize(
    ("victim", "options"),
    [
        ("fog-2", ()),
        ("fog-2", ("--disclosure", "full", "--policy", "setr")),
        ("cloud", ()),
        ("clock", ()),
        ("agent", ()),
        ("sources", ()),
        ("broker", ("--broker", "builtin")),
        ("broker", ("--broker", "mosquitto")),
    ],
)
def test_whoever_is_killed_is_named_and_all_others_end(tmp_path, victim, options):
    up = Up(tmp_path, *options)
    with ending(up):
        up.wait_until_busy()
        up.send(victim, signal.SIGKILL)
        check_loss(up, victim)


@pytest.mark.parametrize("broker", ["builtin", "mosquitto"])
def test_without_its_launcher_everybody_ends(tmp_path, broker):
    up = Up(tmp_path, "--broker", broker)
    with ending(up):
        up.wait_until_busy()
        up.send("launcher", signal.SIGKILL)
        code, _ = up.wait_until_gone()
        assert code == -signal.SIGKILL
        up.check_nothing_is_left()
        up.check_records()


def test_whoever_hangs_is_named_and_all_others_end(tmp_path):
    """Side by side: keep-alive notices a hanging participant after some seconds."""
    victims = {
        "fog-2": ("--broker", "builtin"),
        "clock": ("--broker", "mosquitto"),
        "agent": ("--broker", "mosquitto"),
        "broker": ("--broker", "mosquitto"),
    }
    ups = {victim: Up(tmp_path / victim, *arguments) for victim, arguments in victims.items()}
    with ending(*ups.values()):
        for victim, up in ups.items():
            up.wait_until_busy()
            up.send(victim, signal.SIGSTOP)
        for victim, up in ups.items():
            check_loss(up, victim)


@pytest.mark.slow
def test_the_other_participants_hang(tmp_path):
    victims = {
        "cloud": ("--broker", "mosquitto"),
        "sources": ("--broker", "builtin"),
        "broker": ("--broker", "builtin"),
        "fog-2": ("--disclosure", "full", "--policy", "setr"),
    }
    ups = {victim: Up(tmp_path / victim, *arguments) for victim, arguments in victims.items()}
    with ending(*ups.values()):
        for victim, up in ups.items():
            up.wait_until_busy()
            up.send(victim, signal.SIGSTOP)
        for victim, up in ups.items():
            check_loss(up, victim)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_testbed_that_is_asked_to_end_does(tmp_path, number, code):
    up = Up(tmp_path)
    with ending(up):
        up.wait_until_busy()
        os.killpg(up.launcher.pid, number)  # as a terminal does
        exit_code, error = up.wait_until_gone()
        assert exit_code == code
        assert "Traceback" not in error + up.log
        if number == signal.SIGINT:
            assert f"the participants' records are in {up.out}/participants" in error
        up.check_nothing_is_left()
        up.check_records()


AT_THE_BEGINNING = {
    "clock": (signal.SIGINT, signal.SIGTERM),
    "fog-3": (signal.SIGTERM, signal.SIGINT),
    "agent": (signal.SIGINT, signal.SIGTERM),
}
"""Who was started last when which signal is sent; the second of two in `make test-slow` only."""


@pytest.mark.parametrize(
    ("begun", "number"),
    [
        pytest.param(begun, number, marks=[pytest.mark.slow] if place else [])
        for begun, both in AT_THE_BEGINNING.items()
        for place, number in enumerate(both)
    ],
)
def test_a_testbed_that_is_asked_to_end_while_it_starts_does(tmp_path, begun, number):
    up = Up(tmp_path, "--broker", "builtin" if begun == "fog-3" else "mosquitto")
    with ending(up):
        wait_until(lambda: begun in processes_of(up.out / "testbed.log"))
        up.find_processes()
        os.killpg(up.launcher.pid, number)
        code, error = up.wait_until_gone()
        assert code == 128 + number
        assert "Traceback" not in error
        up.check_nothing_is_left()


def test_a_run_that_is_ended_keeps_no_temporary_folder(tmp_path):
    arguments = ("run", TINY, "--policy", "jsq", "--federated", "--horizon", 10**6, "--speed", 400)
    with started(*arguments, TMPDIR=str(tmp_path)) as process:
        wait_until(lambda: list(tmp_path.glob("fogveil-*/participants/fog-1/journal-0000.csv")))
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=GONE_WITHIN)
    assert process.returncode == 130, error
    assert not list(tmp_path.iterdir())


def test_a_run_that_lost_a_participant_names_the_folder_of_its_records(tmp_path):
    arguments = ("run", TINY, "--policy", "jsq", "--federated", "--horizon", 10**6, "--speed", 400)
    with started(*arguments, "--on-loss", "end", TMPDIR=str(tmp_path)) as process:
        journals = "fogveil-*/participants/fog-?/journal-0000.csv"
        wait_until(lambda: len(list(tmp_path.glob(journals))) == 3)
        (folder,) = tmp_path.glob("fogveil-*")
        os.kill(processes_of(folder / "testbed.log")["fog-3"], signal.SIGKILL)
        _, error = process.communicate(timeout=GONE_WITHIN)
    assert process.returncode == 3
    assert error.splitlines()[-1] == f"what was recorded is kept in {folder}"
    assert (folder / "participants/fog-3/journal-0000.csv").exists()


def test_two_testbeds_side_by_side_do_not_disturb_each_other(tmp_path):
    """Two that start at the same time are not affected when a third is killed."""
    arguments = ("up", TINY, "--policy", "jsq", "--json")
    killed = Up(tmp_path)
    with (
        ending(killed),
        started(*arguments, "--seed", 1, cwd=tmp_path) as first,
        started(*arguments, "--seed", 2, cwd=tmp_path) as second,
    ):
        killed.wait_until_busy()
        killed.send("fog-1", signal.SIGKILL)
        killed.wait_until_gone()
        for seed, process in ((1, first), (2, second)):
            out, error = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, error
            expected = embedded_hash(make_scenario(seed=seed), "jsq")
            assert json.loads(out.splitlines()[-1])["run_hash"] == expected
    assert len(list((tmp_path / "runs/up").iterdir())) == 2


def test_two_testbeds_in_one_folder_are_kept_apart(tmp_path):
    up = Up(tmp_path)
    with ending(up):
        up.wait_until_busy()
        second = fogveil("up", TINY, "--policy", "jsq", "--out", up.out)
        assert second.returncode == 2
        assert second.stderr.splitlines()[-1] == (
            f"fogveil: {up.out}: another testbed is running in this folder: choose another --out"
        )
        before = len(up.decisions())
        wait_until(lambda: len(up.decisions()) > before)
        os.killpg(up.launcher.pid, signal.SIGTERM)
        up.wait_until_gone()
