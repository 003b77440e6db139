"""The command line as a person uses it: separate processes, their output and exit codes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.csv
import pytest
from rich.console import Console
from support import ROOT, make_run

from fogveil.testbed.cli.progress import AuditSteps, CommandProgress

ALWAYS = "from fogveil.agent.policy import Policy\nclass P(Policy):\n    place = lambda *_:"
FOGVEIL = str(Path(sys.executable).parent / "fogveil")
TRACE = 'sources={kind="trace", file="none.csv", columns={time="t"}}'


def fogveil(*arguments, cwd=ROOT, **options):
    return subprocess.run(
        [FOGVEIL, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **options,
    )


def refused(*arguments, **options):
    done = fogveil(*arguments, **options)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("fogveil: ")
    return lines[0]


def test_help_reads_like_a_tour():
    done = fogveil("--help")
    assert done.returncode == 0
    for word in ("fogveil run", "fogveil compare", "fogveil scenario list", "fogveil policies"):
        assert word in done.stdout
    for command in ("run", "compare", "policies", "scenario"):
        assert fogveil(command, "--help").returncode == 0
    assert fogveil("--version").stdout.startswith("fogveil ")


def test_run_prints_delays_loops_and_nodes():
    done = fogveil("run", "scenarios/tiny.toml", "--policy", "jsq")
    assert done.returncode == 0, done.stderr
    delays = ("latency", "waiting", "service", "response", "total response", "fog loop")
    for word in (*delays, "cloud loop", "unserved at the horizon", "fog-3", "utilisation"):
        assert word in done.stdout


def test_json_is_the_last_line_and_the_only_one_on_standard_output(tmp_path):
    arguments = (
        "run",
        "scenarios/stress.toml",
        "--policy",
        "jsq",
        "--rate",
        100,
        "--horizon",
        1000,
    )
    done = fogveil(*arguments, "--seed", 4, "--json", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    expected = make_run("jsq", "stress", sources__scale=100.0, horizon=1000.0, seed=4)
    assert line["run_hash"] == expected.hash
    for key in ("fog_loop", "cloud_loop", "unserved", "workloads", "utilisation"):
        assert key in line
    assert (tmp_path / "run" / "jobs.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "none.toml", "--policy", "jsq"), "none.toml: cannot be read"),
        (("run", "scenarios/tiny.toml", "--policy", "best"), "no policy is called 'best'"),
        (("run", "scenarios/tiny.toml", "--policy", "no.py:P"), "no.py does not exist"),
        (("run", "scenarios/tiny.toml", "--policy", "setr"), "needs disclosure level 'full'"),
        (("run", "scenarios/tiny.toml", "--policy", "jsq", "--rate", "-3"), "--rate -3: expected"),
        (("run", "scenarios/tiny.toml", "--policy", "jsq", "--horizon", "0"), "override horizon: "),
        (("run", "scenarios/tiny.toml", "--policy", "jsq", "--set", "x=1"), "override x: this key"),
        (("run", "tiny", "--policy", "jsq", "--set", "horzon=1"), "did you mean horizon?"),
        (("run", "tiny", "--policy", "jsq", "--set", "fog.ipt=fast"), "override fog.ipt: "),
        (("run", "tiny", "--policy", "jsq", "--window", "3"), "add --federated or --docker"),
        (("run", "papr", "--policy", "jsq"), "no scenario is called 'papr': expected one of paper"),
        (("run", "no/paper.toml", "--policy", "jsq"), "to use the shipped one, write paper"),
        (("run", "geant", "--policy", "jsq"), "--set topology.file=/path/to/graph.gml"),
        (("run", "tiny", "--policy", "jsq", "--rate", "9", "--set", TRACE), "replays a trace"),
        (("compare", "tiny", "--rates", "9", "--set", TRACE), "leave --rates out"),
        (("run", "scenarios/tiny.toml", "--policy", "jsq", "--out", "/proc/x"), "/proc/x: cannot"),
        (("compare", "scenarios/tiny.toml", "--policies", "jsq,best"), "no policy is called"),
        (("compare", "scenarios/tiny.toml", "--rates", "fast"), "--rates: expected positive"),
        (("compare", "scenarios/tiny.toml", "--out", "/proc/x"), "/proc/x: cannot be written"),
        (
            ("compare", "scenarios/tiny.toml", "--policies", "setr", "--disclosure", "count"),
            "policy setr needs disclosure level 'full'",
        ),
        (("league", "--policy", "best"), "no policy is called 'best'"),
        (("league", "--policy", "no.py:P"), "no.py does not exist"),
        (("league", "--policy", "jsq", "--data", "tests"), "expected topologies/Abilene.gml in"),
        (("league", "--policy", "jsq", "--out", "/proc/x"), "cannot be written"),
        (("league", "--quick", "--write-docs"), "--write-docs: a quick look is not comparable"),
        (("scenario", "show", "scenarios/tiny.toml", "--as", "fog-9"), "no participant"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, sentence):
    assert sentence in refused(*arguments)


def test_shipped_scenarios_are_listed_and_run_by_name_from_any_folder(tmp_path):
    (tmp_path / "tiny").mkdir()  # a folder of this name is no scenario
    done = fogveil("scenario", "list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for path in (ROOT / "scenarios").rglob("*.toml"):
        assert path.stem in done.stdout.split()
    done = fogveil("run", "tiny", "--policy", "jsq", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["run_hash"] == make_run("jsq").hash


def test_a_file_goes_before_a_shipped_scenario_of_its_name(tmp_path):
    (tmp_path / "tiny").write_text((ROOT / "scenarios/tiny.toml").read_text() + "scale_ = 1\n")
    assert "tiny: sources.scale_: this key is unknown" in refused(
        "run", "tiny", "--policy", "jsq", cwd=tmp_path
    )


def test_what_a_participant_gets_can_be_shown():
    done = fogveil("scenario", "show", "scenarios/stress.toml", "--as", "fog-3")
    config = json.loads(done.stdout)
    assert config["name"] == "fog-3"
    assert config["ipt"] == pytest.approx(200 + 2 * 800 / 9)
    agent = json.loads(fogveil("scenario", "show", "scenarios/stress.toml", "--as", "agent").stdout)
    assert "ipt" not in agent
    assert agent["nodes"][:2] == ["fog-1", "fog-2"]


def test_scenario_show_summarises_and_draws(tmp_path):
    picture = tmp_path / "net"
    done = fogveil("scenario", "show", "scenarios/stress.toml", "--picture", picture)
    assert done.returncode == 0, done.stderr
    assert "fog-10" in done.stdout
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "net.svg").read_text()


COMPARE = ("compare", "scenarios/stress.toml", "--policies", "random,jsq,setr", "--seeds", 3)


def test_compare_prints_writes_draws_and_skips_what_is_done(tmp_path):
    arguments = (*COMPARE, "--rates", "200,100", "--horizons", "1000", "--out", tmp_path)
    done = fogveil(*arguments)
    assert done.returncode == 0, done.stderr
    assert "18 runs, 0 of them done before" in done.stderr
    assert "× setr" in done.stdout
    table = pyarrow.csv.read_csv(tmp_path / "compare.csv").to_pylist()
    assert len(table) == 6
    by = {(row["policy"], row["rate"]): row for row in table}
    assert by["setr", 100]["fog_loop_ratio"] == 1
    assert by["jsq", 100]["fog_loop_ratio"] > 1.1
    assert by["jsq", 100]["fog_loop_ci95"] > 0
    assert (tmp_path / "loops.png").exists()
    assert (tmp_path / "delays.svg").exists()
    assert r"\toprule" in (tmp_path / "compare.tex").read_text()
    kept = json.loads((tmp_path / "compare.json").read_text())
    assert kept["provenance"]["command"].endswith(f"--horizons 1000 --out {tmp_path}")
    assert (kept["seeds"], kept["rates"], kept["reference"]) == ([1, 2, 3], [200, 100], "setr")
    again = fogveil(*arguments)
    assert "18 of them done before" in again.stderr
    assert again.stdout == done.stdout
    more = fogveil(*arguments, "--seeds", "4")
    assert "24 runs, 18 of them done before" in more.stderr


def test_compare_gives_what_single_runs_give(tmp_path):
    fogveil(*COMPARE, "--horizons", "1000", "--rates", "100", "--out", tmp_path)
    results = [json.loads(path.read_text()) for path in (tmp_path / "runs").iterdir()]
    assert len(results) == 9
    hashes = {(r["policy"], r["seed"]): r["run_hash"] for r in results}
    for (policy, seed), run_hash in hashes.items():
        options = {"sources__scale": 100.0, "horizon": 1000.0, "seed": seed}
        assert run_hash == make_run(policy, "stress", **options).hash


def test_a_changed_scenario_or_policy_is_run_again(tmp_path, write_scenario):
    path = write_scenario()
    policy = tmp_path / "mine.py"
    policy.write_text(
        "from fogveil.agent.policy import Policy\nclass P(Policy):\n    place = lambda *_: 0\n"
    )
    arguments = (
        "compare",
        path,
        "--policies",
        f"{policy}:P",
        "--seeds",
        1,
        "--out",
        tmp_path / "out",
    )
    assert "1 runs, 0 of them" in fogveil(*arguments).stderr
    assert "1 runs, 1 of them" in fogveil(*arguments).stderr
    policy.write_text(policy.read_text().replace("0", "1"))
    assert "1 runs, 0 of them" in fogveil(*arguments).stderr
    path.write_text(path.read_text().replace("ipt = 1500", "ipt = 1400"))
    assert "1 runs, 0 of them" in fogveil(*arguments).stderr


def test_ctrl_c_loses_no_finished_run(tmp_path):
    arguments = (
        *COMPARE,
        "--horizons",
        "60000",
        "--rates",
        "150",
        "--seeds",
        30,
        "--out",
        tmp_path,
    )
    process = subprocess.Popen(
        [FOGVEIL, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A test run in the background inherits an ignored SIGINT; a person's terminal has it on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    runs = tmp_path / "runs"
    deadline = time.monotonic() + 120
    while not (runs.is_dir() and len(list(runs.glob("*.json"))) >= 3):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 90 runs done; the same command continues" in stderr
    assert "Traceback" not in stderr
    kept = {path: path.read_bytes() for path in runs.iterdir()}
    assert 3 <= len(kept) < 90
    assert all(json.loads(content) for content in kept.values())
    done = int(stderr.split("stopped with ")[1].split()[0])
    assert len(kept) >= done
    again = fogveil(*arguments, "--seeds", 1)
    assert again.returncode == 0
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_a_policy_that_fails_in_a_worker_is_one_sentence(tmp_path):
    policy = tmp_path / "mine.py"
    policy.write_text(
        "from fogveil.agent.policy import Policy\nclass P(Policy):\n    place = lambda *_: 9\n"
    )
    arguments = ("compare", "scenarios/tiny.toml", "--policies", f"jsq,{policy}:P", "--seeds", 2)
    done = fogveil(*arguments, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "policy P placed a workload on node 9" in done.stderr


def test_train_evaluate_and_figures(tmp_path):
    hyperparameters = tmp_path / "h.toml"
    hyperparameters.write_text("buffer_capacity = 4000\ntraining_steps = 100\nlayers = [16]\n")
    arguments = ("train", "tiny", "--agent", "parl", "--hyperparameters", hyperparameters)
    done = fogveil(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    light = tmp_path / "runs/train/parl-tiny-1/agent.npz"
    assert "trained: runs/train/parl-tiny-1/agent.npz" in done.stdout
    again = fogveil(*arguments, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    arguments = ("evaluate", light, ROOT / "scenarios/tiny.toml", "--seeds", 2, "--horizons", 500)
    done = fogveil(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "parl-tiny-1" in done.stdout
    done = fogveil("figures", "runs/evaluate", "runs/train", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    drawn = {path.name for path in (tmp_path / "runs/figures").iterdir()}
    assert {"loops.svg", "delays.svg", "distribution.svg", "training-parl.svg"} <= drawn


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("train", "scenarios/tiny.toml", "--agent", "best"), "no agent is called 'best'"),
        (("train", "tiny", "--agent", "parl", "--replay"), "--replay takes over the buffer of an"),
        (("train", "tiny", "--agent", "parl", "--from", "no.npz"), "the checkpoint does not exist"),
        (("run", "tiny", "--policy", "jsq", "--adapt"), "policy jsq cannot learn at work"),
        (("run", "tiny", "--policy", "veil", "--adapt=off"), "--adapt=off: expected on (learn all"),
        (("run", "tiny", "--policy", "jsq", "--hyperparameters", "x"), "is for a run with --adapt"),
        (("up", "tiny", "--policy", "veil", "--adapt", "--docker"), "image does not hold"),
        (("train", "scenarios/tiny.toml", "--agent", "plrl-ed"), "needs disclosure level 'full'"),
        (("evaluate", "none.npz", "scenarios/tiny.toml"), "none.npz: the checkpoint does not"),
        (("figures", "none"), "none: is not a folder"),
        (("figures", "scenarios"), "no results below scenarios"),
        (("compare", "scenarios/tiny.toml", "--reference", "setrr"), "--reference setrr"),
        (("compare", "scenarios/tiny.toml", "--policies", ","), "at least one policy"),
    ],
)
def test_bad_input_to_agents_and_figures(arguments, sentence, tmp_path):
    out = ("--out", tmp_path / "out")
    assert sentence in refused(*arguments, *out)


def test_a_terminated_run_leaves_nothing_behind(tmp_path):
    arguments = ("run", "scenarios/stress.toml", "--policy", "ci-setr", "--horizon", 10**6)
    process = subprocess.Popen(
        [FOGVEIL, *map(str, arguments), "--out", str(tmp_path / "run")], cwd=ROOT
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("run/*.part")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=30) == 143
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_dies_is_one_sentence_and_exit_code_3(tmp_path):
    policy = tmp_path / "mine.py"
    policy.write_text(f"import os\n{ALWAYS} os._exit(1)\n")
    arguments = ("compare", "scenarios/tiny.toml", "--policies", f"{policy}:P", "--seeds", 2)
    done = fogveil(*arguments, "--out", tmp_path / "out")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "a worker process died" in done.stderr


def test_a_comparison_never_replaces_that_of_another_scenario(tmp_path):
    words = ("compare", "tiny", "--policies", "jsq", "--seeds", 1, "--horizons", 200)
    assert fogveil(*words, "--out", tmp_path / "out", cwd=tmp_path).returncode == 0
    table = (tmp_path / "out" / "compare.csv").read_bytes()
    other = ("compare", "few", *words[2:], "--out", tmp_path / "out")
    assert "holds other results; choose another --out" in refused(*other, cwd=tmp_path)
    assert (tmp_path / "out" / "compare.csv").read_bytes() == table
    assert fogveil(*other, "--force", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out" / "compare.csv").read_bytes() != table
    for seeds in (1, 2):  # without --out, each comparison has a folder of its own
        assert fogveil(*words[:4], "--seeds", seeds, *words[6:], cwd=tmp_path).returncode == 0
    folders = [path for path in (tmp_path / "runs/compare").iterdir() if path.name != "runs"]
    assert len(folders) == 2


@pytest.mark.parametrize("words", [("--adapt",), ("--adapt=on",), ("--adapt", "on")])
def test_adapt_needs_no_value_and_may_have_one(words, tmp_path):
    """Wherever it stands: what follows is an option, the scenario or its value."""
    for before, after in ((words, ("tiny",)), (("tiny",), words)):
        options = ("--policy", "veil", "--horizon", 300, "--out", tmp_path)
        done = fogveil("run", *before, *after, *options)
        assert done.returncode == 0, done.stderr
        assert "adapted/agent.npz (use it as --policy)" in done.stderr
        assert json.loads((tmp_path / "run.json").read_text())["adapt"]["when"] == "on"


class Pipe(io.StringIO):
    """What a console writes into that is no terminal."""


def test_a_pipe_gets_lines_with_the_time_left(monkeypatch):
    moments = iter([0.0, 1.0, 6.0, 7.0])
    monkeypatch.setattr("fogveil.testbed.cli.progress.time.monotonic", lambda: next(moments))
    console = Console(file=Pipe())
    with CommandProgress(console, lines=True) as progress:
        progress.get_time = lambda: 0.0
        task = progress.add_task("running", total=10)
        for done in (1, 4, 5):
            progress.update(task, completed=done)
    assert console.file.getvalue().strip() == "running: 40% done, 9 s left"


def test_an_audit_says_how_long_it_takes(monkeypatch):
    moments = iter([0.0, 24.0, 32.0])
    monkeypatch.setattr("fogveil.testbed.cli.progress.time.monotonic", lambda: next(moments))
    steps = AuditSteps(1)
    assert steps.begin("starting tiny") == "starting tiny (1 of 8, about 115 s left)"
    assert steps.begin("trying every method") == (
        "trying every method (2 of 8, about 3 min left)"  # at half the measured pace
    )
    assert steps.begin("something conspicuous") == "something conspicuous"


LONG = (
    *("run", "up", "compare", "sweep", "league", "train", "evaluate", "figures", "report"),
    *("reproduce", "audit", "leakage", "map", "chaos"),
)


@pytest.mark.parametrize("command", LONG)
def test_long_commands_are_quiet_and_machine_readable_on_demand(command):
    said = fogveil(command, "--help").stdout
    assert "--quiet" in said
    assert "--json" in said


def test_quiet_prints_the_result_alone(tmp_path):
    words = ("tiny", "--policies", "jsq,setr", "--seeds", "1", "--out", tmp_path)
    done = fogveil("compare", *words, "--quiet", "--json")
    assert done.stderr == ""
    averages = json.loads(done.stdout)["averages"]
    assert {row["policy"] for row in averages} == {"jsq", "setr"}
    refused = fogveil("compare", "no-such-scenario", "--quiet")
    assert refused.returncode == 2
    assert "no-such-scenario" in refused.stderr, "an error is printed even so"
    page = fogveil("report", tmp_path, "--out", tmp_path / "page.html", "--quiet", "--json")
    assert json.loads(page.stdout)["written"] == str(tmp_path / "page.html")
    assert page.stderr == ""
