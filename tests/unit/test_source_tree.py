"""The digest of the code, which results of comparisons are stored under."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from fogveil.agent.policies import POLICIES
from fogveil.testbed.source_tree import PORTIONS, source_files

FOLDERS = ("proto", "provider_node", "broker", "agent", "testbed")
PRINT_DIGEST = """
from fogveil.testbed.source_tree import code_digest
print(code_digest(frozenset({"fogveil.testbed.engine.run", "fogveil.agent.policies.jsq"})))
"""
PRINT_UNNOTICED = """
import sys
from pathlib import Path
from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.source_tree import code_digest
scenario, policy, module = sys.argv[1:]
run_embedded(load_scenario(scenario, {"disclosure": "full", "horizon": 300}), policy)
modules = frozenset({"fogveil.testbed.engine.run", module})
digest = code_digest(modules)
loaded = [m for name, m in sys.modules.items() if name.startswith("fogveil.") and m.__file__]
executed = [Path(m.__file__) for m in loaded if m.__name__ != code_digest.__module__]
print(len(executed))
for path in executed:
    content = path.read_bytes()
    path.write_bytes(content + b"\\n")
    code_digest.cache_clear()
    if code_digest(modules) == digest:
        print(path)
    path.write_bytes(content)
"""


def copy_package(checkout: Path) -> Path:
    """Copy the five folders below another one, as a second checkout would have them."""
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder / "fogveil",
            checkout / folder / "fogveil",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    return checkout


def python(checkout: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(checkout / folder) for folder in FOLDERS)
    return subprocess.run(
        [sys.executable, *words],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": path},
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A checkout below folders that are called like parts of the package."""
    below = tmp_path_factory.mktemp("top") / "containers" / "cli" / "audit" / "v1"
    return copy_package(below / "fogveil")


def test_all_of_the_namespace_is_part_of_it():
    portions = {path.name for path in ROOT.glob("*/fogveil/*") if (path / "__init__.py").exists()}
    assert set(PORTIONS) == portions
    assert "fogveil/agent/decision_record.py" in source_files()


def test_the_location_does_not_change_it(checkout, tmp_path):
    other = copy_package(tmp_path / "elsewhere")
    assert len({python(place, "-c", PRINT_DIGEST).stdout for place in (checkout, other)}) == 1


def test_compiled_files_do_not_change_it(checkout):
    before = python(checkout, "-c", PRINT_DIGEST).stdout
    compiled = checkout / "agent/fogveil/agent/__pycache__"
    compiled.mkdir(exist_ok=True)
    (compiled / "left.py").write_text("x = 1\n")
    assert python(checkout, "-c", PRINT_DIGEST).stdout == before


@pytest.mark.parametrize("policy", ["jsq", "veil", "veil-total"])
def test_a_change_to_any_module_that_a_run_loads_changes_it(checkout, policy):
    module = POLICIES[policy].module
    words = (str(ROOT / "scenarios/tiny.toml"), policy, module)
    number, *unnoticed = python(checkout, "-c", PRINT_UNNOTICED, *words).stdout.splitlines()
    assert int(number) > 30
    assert unnoticed == []


def test_a_trained_agent_is_part_of_it(checkout):
    before = python(checkout, "-c", PRINT_DIGEST).stdout
    trained = checkout / "agent/fogveil/agent/trained/veil-waiting.npz"
    content = trained.read_bytes()
    trained.write_bytes(content + b"x")
    assert python(checkout, "-c", PRINT_DIGEST).stdout != before
    trained.write_bytes(content)


def test_results_are_computed_again_after_a_change_to_the_code_behind_them(checkout, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("from fogveil.agent.policies.nearest import Nearest\nclass Own(Nearest): pass\n")

    def compare() -> str:
        words = ("compare", str(ROOT / "scenarios" / "tiny.toml"), "--seeds", "1")
        options = ("--policies", f"random,nearest,{own}:Own", "--out", str(tmp_path / "out"))
        return python(checkout, "-m", "fogveil.testbed.cli", *words, *options).stderr

    def change(module: str) -> None:
        path = checkout / module
        path.write_text(path.read_text() + "\n# changed\n")

    assert "3 runs, 0 of them done before" in compare()
    assert "3 runs, 3 of them done before" in compare()
    change("testbed/fogveil/testbed/cli/compare.py")
    assert "3 runs, 3 of them done before" in compare(), "no run executes it"
    change("agent/fogveil/agent/policies/nearest.py")
    assert "3 runs, 1 of them done before" in compare(), "two policies are made of it"
    change("provider_node/fogveil/provider_node/node.py")
    assert "3 runs, 0 of them done before" in compare()
