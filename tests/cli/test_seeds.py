"""The seed of a run: federated ones draw it, keep it for the experimenter, and can be repeated."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from documented import TRAINING
from support import SCENARIOS, make_world
from typer.testing import CliRunner, Result

from fogveil.core.errors import InfrastructureError, InputError
from fogveil.core.randomness import Seeds
from fogveil.testbed.cli.app import app
from fogveil.testbed.cli.repeat import read_earlier_run
from fogveil.testbed.cli.seeds import SMALL, noting_seed, with_seed
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.records.training_log import DESCRIPTION, kept_seed
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.load import shipped_scenarios

TINY = SCENARIOS / "tiny.toml"
FINDER = """
import sys
from fogveil.agent.policy import Level, Policy
from fogveil.core.randomness import Seeds

def find(own):
    return next((seed for seed in range(5000) if Seeds.of(seed).policy == own), None)

class Finder(Policy):
    needs = Level.COUNT

    def __init__(self, view):
        super().__init__(view)
        print("the scenario's seed is", find(view.seed), file=sys.stderr, flush=True)

    def place(self, seen):
        return min(range(len(seen.counts)), key=seen.counts.__getitem__)
"""


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def content(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a federated run without --seed, whose policy looks for the seed."""
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "finder.py").write_text(FINDER)
    words = ("run", TINY, "--policy", f"{folder}/finder.py:Finder", "--federated")
    done = command(*words, "--horizon", 300, "--broker", "builtin", "--out", folder / "run")
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_a_policy_does_not_find_the_seed_by_trying(drawn):
    """In the first version it was that of the scenario's file, 1, and found in a moment."""
    tried: dict = {}
    exec(FINDER, tried)
    assert tried["find"](Seeds.of(1).policy) == 1
    log = (drawn / "testbed.log").read_text()
    assert "the scenario's seed is None" in log
    assert content(drawn)["seed"] >= SMALL  # fails once in 2**64 runs


def test_the_seed_is_kept_for_the_experimenter_alone(drawn):
    assert stat.S_IMODE((drawn / "run.json").stat().st_mode) == 0o600
    seed = str(content(drawn)["seed"])
    files = [path for path in (drawn / "participants").rglob("*") if path.is_file()]
    assert files
    for path in (*files, drawn / "testbed.log"):
        assert seed not in path.read_text(errors="replace"), path


def test_a_run_is_repeated_from_its_record(drawn, tmp_path):
    for words in (("--embedded",), ("--broker", "builtin", "--window", 1)):
        done = command("run", "--repeat", drawn, *words, "--json", "--out", tmp_path)
        assert done.exit_code == 0, done.output
        assert f"the run hash is that of {drawn}" in done.stderr
        again = content(tmp_path)
        assert again["mode"] == ("embedded" if "--embedded" in words else "federated")
        for key in ("scenario", "seed", "policy", "run_hash"):
            assert again[key] == content(drawn)[key]


def test_a_repeated_run_that_differs_is_a_failed_check(drawn, tmp_path):
    changed = {**content(drawn), "run_hash": "0" * 64}
    (tmp_path / "run.json").write_text(json.dumps(changed))
    done = command("run", "--repeat", tmp_path / "run.json", "--embedded")
    assert done.exit_code == 1
    assert "has another run hash, not 0000" in str(done.exception)
    # Another seed or policy makes another run, of which nothing is claimed.
    for words in (("--seed", 4), ("--policy", "jsq"), ("--horizon", 200)):
        done = command("run", "--repeat", tmp_path / "run.json", "--embedded", *words)
        assert done.exit_code == 0, done.output
        assert "the run hash is that of" not in done.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "name a SCENARIO and a --policy"),
        (("tiny",), "name a SCENARIO and a --policy"),
        (("--embedded", "tiny", "--policy", "jsq"), "--embedded goes with --repeat"),
        (("--repeat", "/nowhere"), "cannot be used: No such file or directory"),
        (("--repeat", TINY), "it does not describe a run"),
    ],
)
def test_what_cannot_be_repeated_is_refused(words, sentence):
    done = command("run", *words)
    assert done.exception.exit_code == 2
    assert sentence in str(done.exception)


@pytest.mark.parametrize(
    "change",
    [
        {"scenario": "tiny"},
        {"scenario": {}},
        {"mode": "somewhere"},
        {"run_hash": None},
        {"federated": {"draw": 3}},
        {"federated": {"window": "x"}},
        {"policy": 3},
    ],
)
def test_a_damaged_record_is_refused(change, tmp_path):
    run = run_embedded(load_scenario(TINY, {"horizon": 50.0}), "random")
    (tmp_path / "run.json").write_text(json.dumps({**run, **change}))
    done = command("run", "--repeat", tmp_path)
    assert isinstance(done.exception, InputError), done.output


@pytest.mark.parametrize("name", shipped_scenarios())
def test_a_scenario_is_the_same_from_its_record(name):
    scenario = load_scenario(name, {"seed": 2**128 - 1})
    assert load_scenario(json.loads(json.dumps(scenario.model_dump(mode="json")))) == scenario


def test_a_run_with_128_bits_is_the_same_in_its_files(tmp_path):
    scenario = load_scenario(TINY, {"seed": 2**128 - 1, "horizon": 300.0})
    run = run_embedded(scenario, "jsq", tmp_path)
    earlier = read_earlier_run(tmp_path)
    assert run_embedded(load_scenario(earlier.scenario), "jsq")["run_hash"] == run["run_hash"]
    world = make_world(seed=2**128 - 1)
    for name in ("agent", "sources", world.nodes[0]):
        assert 0 <= json.loads(json.dumps(world.projection(name)))["seed"] < 2**128


def test_a_small_seed_warns_where_participants_are_apart(capsys):
    assert with_seed({}, federated=False) == {}
    assert with_seed({"seed": 1}, federated=False) == {"seed": 1}
    assert len({with_seed({}, federated=True)["seed"] for _ in range(9)}) == 9
    assert with_seed({}, federated=True, earlier=7) == {"seed": 7}
    assert capsys.readouterr().err == ""
    assert with_seed({"seed": 2**100}, federated=True) == {"seed": 2**100}
    assert capsys.readouterr().err == ""
    for small in (1, -1, SMALL - 1):
        assert with_seed({"seed": small}, federated=True) == {"seed": small}
        assert "a policy can find such a small seed by trying" in capsys.readouterr().err


def test_a_compose_folder_has_a_seed_of_its_own(tmp_path):
    for words in (("--seed", 1), ()):
        done = command("docker", "generate", TINY, "--policy", "jsq", "--out", tmp_path, *words)
        assert done.exit_code == 0, done.output
        assert ("small seed" in done.stderr) == bool(words)
        file = tmp_path / "scenario" / "scenario.toml"
        assert (file.read_text() == TINY.read_text()) == bool(words)
    assert load_scenario(file).seed >= SMALL
    assert load_scenario(file, {"seed": 1}) == load_scenario(TINY)


def test_a_failed_run_tells_the_seed_that_it_had(capfd):
    with pytest.raises(InfrastructureError), noting_seed({}, 2**100):
        raise InfrastructureError("fog-1 was lost")
    assert capfd.readouterr().err.endswith(f"to try this run again: --seed {2**100}\n")
    with pytest.raises(InfrastructureError), noting_seed({"seed": 1}, 1):
        raise InfrastructureError("fog-1 was lost")
    assert not capfd.readouterr().err


def test_the_show_command_says_which_seed_it_shows():
    done = command("scenario", "show", TINY, "--as", "agent")
    assert json.loads(done.stdout)["seed"] == Seeds.of(1).policy
    assert "a federated run without --seed draws others" in done.stderr


def test_a_training_of_an_earlier_version_has_the_seed_of_its_scenario(tmp_path):
    assert kept_seed(tmp_path, 1) is None
    (tmp_path / DESCRIPTION).write_text('{"digest": "of an earlier version"}')
    assert kept_seed(tmp_path, 1) == 1


@pytest.mark.slow
def test_a_federated_training_continues_with_the_seed_that_it_drew(tmp_path):
    (tmp_path / "short.toml").write_text(TRAINING)
    out = tmp_path / "out"
    words = ("train", TINY, "--agent", "parl", "--disclosure", "total", "--federated", "--horizon")
    words += (300, "--broker", "builtin", "--hyperparameters", tmp_path / "short.toml")
    for _ in range(2):  # the second finds it complete
        done = command(*words, "--out", out)
        assert done.exit_code == 0, done.output
    assert kept_seed(out, 1) == json.loads((out / DESCRIPTION).read_text())["seed"] >= SMALL
