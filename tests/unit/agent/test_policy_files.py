"""A user's policy of several files, and what is shown of it when it fails or hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import SCENARIOS, make_world

import fogveil.agent.policies as policies
from fogveil.agent.policy_files import read_policy_files
from fogveil.core.errors import InputError
from fogveil.testbed.engine.embedded import simulate
from fogveil.testbed.experiments.comparison import Comparison
from fogveil.testbed.launch.docker.compose import _copy_policy
from fogveil.testbed.launch.policy_requirements import requirements_of

POLICY = """
import json
import beside
from fogveil.agent.policy import Policy

class Mine(Policy):
    def place(self, seen):
        from parts.late import node  # imported when the run is under way
        return node(beside.NODE)
"""


def write_policy(folder: Path, node: int = 1) -> str:
    (folder / "parts").mkdir(parents=True)
    (folder / "mine.py").write_text(POLICY)
    (folder / "beside.py").write_text(f"NODE = {node}\n")
    (folder / "parts" / "late.py").write_text("from .deep import same\nnode = same\n")
    (folder / "parts" / "deep.py").write_text("def same(node):\n    return node\n")
    (folder / "json.py").write_text("raise RuntimeError('the standard library comes first')\n")
    (folder / "unused.py").write_text("")
    (folder / "scenario.toml").write_text("secret = 1\n")
    return f"{folder}/mine.py:Mine"


def placed(spec: str) -> int:
    world = make_world()
    policy = policies.load(spec, world.agent)
    simulate(world, policy)
    return policy.place(None)


def test_only_the_python_files_that_it_imports_go_with_a_policy(tmp_path):
    spec = write_policy(tmp_path / "mine")
    names = ["mine.py", "beside.py", "parts/late.py", "parts/deep.py"]
    assert [name for name, _ in read_policy_files(tmp_path / "mine" / "mine.py").contents] == names
    _copy_policy(spec, tmp_path)
    copied = [path for path in (tmp_path / "policy").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "policy").as_posix() for path in copied} == set(names)


def test_a_link_to_something_else_is_not_taken_for_python(tmp_path):
    (tmp_path / "secret.toml").write_text("ipt = 1\n")
    (tmp_path / "mine.py").write_text("import secret\n")
    (tmp_path / "secret.py").symlink_to(tmp_path / "secret.toml")
    assert len(read_policy_files(tmp_path / "mine.py").contents) == 1


def test_a_policy_imports_what_lies_beside_it_and_sees_every_change(tmp_path):
    one, other = write_policy(tmp_path / "a", 1), write_policy(tmp_path / "b", 2)
    assert (placed(one), placed(other), placed(one)) == (1, 2, 1)
    (tmp_path / "a" / "beside.py").write_text("NODE = 0\n")
    assert placed(one) == 0


def test_what_a_policy_imports_is_sent_with_it_where_its_needs_are_asked(tmp_path):
    spec = write_policy(tmp_path / "mine")
    assert requirements_of(spec, make_world()).needs.word == "none"
    (tmp_path / "mine" / "beside.py").write_text("raise KeyError('NODE')\n")
    with pytest.raises(InputError, match="cannot be loaded: KeyError: 'NODE'") as refusal:
        requirements_of(spec, make_world())
    assert refusal.value.__notes__ == [
        "  mine.py, line 3, in <module>: import beside",
        "  beside.py, line 1, in <module>: raise KeyError('NODE')",
    ]


def test_results_are_stored_under_all_files_of_a_policy(tmp_path):
    comparison = Comparison(
        SCENARIOS / "tiny.toml",
        {},
        (write_policy(tmp_path / "mine"),),
        (None,),
        (100,),
        1,
        tmp_path,
    )
    (run,) = comparison.runs()
    paths = {comparison.path_of(run)}
    for name in ("beside.py", "parts/deep.py"):
        (tmp_path / "mine" / name).write_text("# edited\n")
        paths.add(comparison.path_of(run))
    assert len(paths) == 3
    (tmp_path / "mine" / "unused.py").write_text("# edited\n")
    assert comparison.path_of(run) in paths


PRINT_PATHS = """
import sys
from pathlib import Path
from fogveil.testbed.experiments.comparison import Comparison
policy, library, scenario = sys.argv[1:]
comparison = Comparison(scenario, {}, (policy,), (None,), (100,), 1, Path("out"))
(run,) = comparison.runs()
for text in ("", "# edited"):
    Path(library, "pack", "inner.py").write_text(text)
    print(comparison.path_of(run))
"""


def test_results_are_stored_under_files_that_are_found_by_pythonpath(tmp_path):
    package = tmp_path / "library" / "pack"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .inner import *\n")
    (package / "inner.py").touch()
    policy = tmp_path / "mine.py"
    policy.write_text("import pack, numpy\n" + POLICY.replace("import beside\n", ""))
    path = os.pathsep.join((str(tmp_path / "library"), *sys.path))
    done = subprocess.run(
        [sys.executable, "-c", PRINT_PATHS, f"{policy}:Mine", tmp_path / "library", "tiny"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    one, other = done.stdout.split()
    assert one != other


FAILS = """
import statistics
from fogveil.agent.policy import Policy

def middle(values):
    return statistics.median(values)

class Fails(Policy):
    def place(self, seen):
        return middle([])

class Hangs(Policy):
    answers_within = 0.2

    def place(self, seen):
        while True:
            try:
                step()
            except Exception:
                pass

def step():
    raise ValueError
"""


def test_an_error_shows_the_users_own_lines(tmp_path):
    (tmp_path / "mine.py").write_text(FAILS)
    world = make_world()
    with pytest.raises(InputError, match=r"failed at time .*: StatisticsError: no median") as error:
        simulate(world, policies.load(f"{tmp_path}/mine.py:Fails", world.agent))
    assert error.value.__notes__ == [
        "  mine.py, line 10, in place: return middle([])",
        "  mine.py, line 6, in middle: return statistics.median(values)",
    ]


def test_a_policy_that_hangs_is_ended_where_it_is(tmp_path):
    (tmp_path / "mine.py").write_text(FAILS)
    world = make_world()
    sentence = r"policy Hangs did not return from place at time \S+ within 0.2 s"
    with pytest.raises(InputError, match=sentence) as error:
        simulate(world, policies.load(f"{tmp_path}/mine.py:Hangs", world.agent))
    assert error.value.__notes__[0].startswith("  mine.py, line 1")


def test_the_time_to_answer_is_checked(tmp_path):
    (tmp_path / "mine.py").write_text(FAILS.replace("0.2", "0"))
    with pytest.raises(InputError, match="answers_within to be a positive number"):
        policies.find(f"{tmp_path}/mine.py:Hangs")
