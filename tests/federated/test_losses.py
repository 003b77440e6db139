"""Whoever is lost, the testbed ends by itself, says who it was, and leaves only its records."""

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
    code, said = up.wait_until_gone()
    assert code == 3, (victim, said)
    assert "Traceback" not in said + up.log, victim
    (sentence,) = [line for line in said.splitlines() if line.startswith("fogveil: ")]
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


def test_whoever_stops_without_a_word_is_named_and_all_others_end(tmp_path):
    """Side by side: a silent participant is noticed by its keep-alive, after some seconds."""
    victims = {
        "fog-2": ("--broker", "builtin"),
        "clock": ("--broker", "mosquitto"),
        "agent": ("--broker", "mosquitto"),
        "broker": ("--broker", "mosquitto"),
    }
    ups = {victim: Up(tmp_path / victim, *words) for victim, words in victims.items()}
    with ending(*ups.values()):
        for victim, up in ups.items():
            up.wait_until_busy()
            up.send(victim, signal.SIGSTOP)
        for victim, up in ups.items():
            check_loss(up, victim)


@pytest.mark.slow
def test_the_rest_stops_without_a_word(tmp_path):
    victims = {
        "cloud": ("--broker", "mosquitto"),
        "sources": ("--broker", "builtin"),
        "broker": ("--broker", "builtin"),
        "fog-2": ("--disclosure", "full", "--policy", "setr"),
    }
    ups = {victim: Up(tmp_path / victim, *words) for victim, words in victims.items()}
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
        found, said = up.wait_until_gone()
        assert found == code
        assert "Traceback" not in said + up.log
        if number == signal.SIGINT:
            assert f"what each participant recorded is in {up.out}/participants" in said
        up.check_nothing_is_left()
        up.check_records()


AT_THE_BEGINNING = {
    "clock": (signal.SIGINT, signal.SIGTERM),
    "fog-3": (signal.SIGTERM, signal.SIGINT),
    "agent": (signal.SIGINT, signal.SIGTERM),
}
"""Who has just been started, and what is sent then; the second in `make test-slow` only."""


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
        up.note_processes()
        os.killpg(up.launcher.pid, number)
        code, said = up.wait_until_gone()
        assert code == 128 + number
        assert "Traceback" not in said
        up.check_nothing_is_left()


def test_a_run_that_is_ended_keeps_no_temporary_folder(tmp_path):
    words = ("run", TINY, "--policy", "jsq", "--federated", "--horizon", 10**6, "--speed", 400)
    with started(*words, TMPDIR=str(tmp_path)) as process:
        wait_until(lambda: list(tmp_path.glob("fogveil-*/participants/fog-1/journal-0000.csv")))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=GONE_WITHIN)
    assert process.returncode == 130, said
    assert not list(tmp_path.iterdir())


def test_a_run_that_lost_somebody_says_where_the_records_are(tmp_path):
    words = ("run", TINY, "--policy", "jsq", "--federated", "--horizon", 10**6, "--speed", 400)
    with started(*words, TMPDIR=str(tmp_path)) as process:
        journals = "fogveil-*/participants/fog-?/journal-0000.csv"
        wait_until(lambda: len(list(tmp_path.glob(journals))) == 3)
        (folder,) = tmp_path.glob("fogveil-*")
        os.kill(processes_of(folder / "testbed.log")["fog-3"], signal.SIGKILL)
        _, said = process.communicate(timeout=GONE_WITHIN)
    assert process.returncode == 3
    assert said.splitlines()[-1] == f"what was recorded is kept in {folder}"
    assert (folder / "participants/fog-3/journal-0000.csv").exists()


def test_two_testbeds_side_by_side_do_not_disturb_each_other(tmp_path):
    """Brought up at the same time, one stays whole while the other is killed."""
    words = ("up", TINY, "--policy", "jsq", "--json")
    killed = Up(tmp_path)
    with (
        ending(killed),
        started(*words, "--seed", 1, cwd=tmp_path) as first,
        started(*words, "--seed", 2, cwd=tmp_path) as second,
    ):
        killed.wait_until_busy()
        killed.send("fog-1", signal.SIGKILL)
        killed.wait_until_gone()
        for seed, process in ((1, first), (2, second)):
            out, said = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, said
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
            f"fogveil: {up.out}: another testbed is at work here"
        )
        before = len(up.decisions())
        wait_until(lambda: len(up.decisions()) > before)
        os.killpg(up.launcher.pid, signal.SIGTERM)
        up.wait_until_gone()
