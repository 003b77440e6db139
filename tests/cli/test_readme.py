"""The README and the docs: their commands work where only fogveil is, and print what is shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from documented import PAGES, commands, comparable, python_example, read, write_examples
from federated_support import once
from packaging_support import Environment, build_wheel, linked_environment, outside
from support import ROOT

from fogveil.broker import mosquitto

MOST_LINES = 200
NOT_HERE = {"docs/scenarios.md": ["/data/Abilene.gml"]}
"""Files that commands of a page name, and that everybody has to find for himself."""


@pytest.fixture(scope="session")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What `make demo` installs, and nothing else."""
    wheel = Path(once(tmp_path_factory, "wheel", lambda folder: str(build_wheel(folder))))

    def make(folder: Path) -> str:
        return str(linked_environment(folder / "venv", wheel, extras=["train"]).folder)

    return Environment(Path(once(tmp_path_factory, "newcomer", make)))


@pytest.mark.parametrize("library", ["pytest", "hypothesis", "duckdb", "stable_baselines3"])
def test_a_newcomer_has_nothing_that_only_the_tests_need(newcomer, library, tmp_path):
    failed = newcomer.run("python", "-c", f"import {library}", cwd=tmp_path, check=False)
    assert "ModuleNotFoundError" in failed.stderr


def follow_page(page: str, environment: Environment, folder: Path, *, short: bool) -> int:
    """Run the commands of a page one after the other; return how many outputs were compared."""
    write_examples(folder)
    compared = 0
    for command in commands(page):
        if any(name in command.text for name in NOT_HERE.get(page, ())):
            continue
        words = command.shortened() if short else command.words
        shows = command.output is not None and words == command.words
        done = environment.run(*words, cwd=folder, check=not shows)  # it may show an error
        if shows:
            printed = comparable(done.stdout or done.stderr)
            assert printed == comparable(command.output), command.text
            compared += 1
    return compared


@pytest.mark.parametrize(("page", "outputs"), [*PAGES.items()])
def test_commands_print_what_a_page_shows(page, outputs, newcomer, tmp_path):
    assert follow_page(page, newcomer, tmp_path, short=True) == outputs


@pytest.mark.slow
def test_comparisons_print_what_a_page_shows(newcomer, tmp_path):
    assert follow_page("docs/records.md", newcomer, tmp_path, short=False) == 2


@pytest.mark.slow
def test_the_audit_gives_the_verdicts_that_the_readme_shows(newcomer, tmp_path):
    if os.geteuid() != 0 or not mosquitto.find():
        pytest.skip("the README shows the audit as root, with mosquitto: run it so to compare")
    printed = newcomer.run("fogveil", "audit", "paper", cwd=tmp_path).stdout
    assert verdicts(printed) == verdicts(read("README.md"))
    assert len(verdicts(printed)) > 8


def verdicts(text: str) -> list[str]:
    verdict = re.compile(
        r"^((?:PASS|FAIL|MEASURED|NOT SHOWN) .+?|\d+ promises .+?) *$", re.MULTILINE
    )
    return verdict.findall(text)


@pytest.mark.slow
def test_make_demo_installs_all_that_the_readme_needs(tmp_path):
    checkout = copy_checkout(tmp_path / "checkout")
    done = subprocess.run(
        ["make", "demo"], cwd=checkout, env=outside(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal those of the embedded engine, to the last bit" in done.stdout
    assert (checkout / "runs/demo/delays.png").is_file()
    newcomer = Environment(checkout / ".venv")
    missing = newcomer.run("python", "-c", "import pytest", cwd=checkout, check=False)
    assert "ModuleNotFoundError" in missing.stderr
    assert follow_page("README.md", newcomer, checkout, short=True) == PAGES["README.md"]


def copy_checkout(folder: Path) -> Path:
    """Copy the files of the repository, as a clone has them."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listing.stdout.rstrip("\0").split("\0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def test_the_readme_is_short():
    assert len(read("README.md").splitlines()) <= MOST_LINES


def test_the_readme_says_how_to_get_the_command():
    assert ". .venv/bin/activate" in read("README.md")
    assert ".venv/bin/fogveil" in read("README.md")


def test_the_example_policy_is_ten_lines():
    example = python_example("README.md", "(Policy)")
    assert len([line for line in example.splitlines() if line.strip()]) <= 10


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_files_that_a_page_links_to_exist(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_modules_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    modules = re.findall(r"(?:python -m |`)((?:fogveil|benchmarks)(?:\.[a-z_]\w*)+)", text)
    for module in modules:
        assert find_module(module), module


def find_module(module: str) -> bool:
    """Tell whether a dotted name is a module of the checkout."""
    path = Path(*module.split("."))
    roots = (
        ROOT,
        *(ROOT / name for name in ("proto", "provider_node", "broker", "agent", "testbed")),
    )
    return any(
        (root / path).with_suffix(".py").is_file() or (root / path / "__init__.py").is_file()
        for root in roots
    )
