"""The README and the docs: their commands work where only fogveil is, and print what is shown."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from documented import (
    PAGES,
    Command,
    commands,
    comparable,
    pages,
    python_blocks,
    python_example,
    read,
    write_examples,
)
from federated_support import once
from packaging_support import Environment, build_wheel, linked_environment, outside
from support import ROOT

from fogveil.broker import mosquitto
from fogveil.testbed.cli.app import app

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
    return follow_pages((page,), environment, folder, short=short)


def follow_pages(
    names: Sequence[str], environment: Environment, folder: Path, *, short: bool
) -> int:
    """Run the code and the commands of some pages in one folder, no command twice."""
    compared, done_before = 0, set()
    for page in names:
        write_examples(folder, page)
        for code in python_blocks(page, titled=False):
            if "(Policy)" not in code:  # the README's example is run as a policy
                environment.run("python", "-c", code, cwd=folder)
        new = [command for command in commands(page) if command.text not in done_before]
        done_before |= {command.text for command in new}
        compared += follow_commands(page, new, environment, folder, short=short)
    return compared


def follow_commands(
    page: str, found: Sequence[Command], environment: Environment, folder: Path, *, short: bool
) -> int:
    compared = 0
    for command in found:
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


@pytest.mark.parametrize(("names", "outputs"), [*PAGES.items()], ids=str)
def test_commands_print_what_a_page_shows(names, outputs, newcomer, tmp_path):
    assert follow_pages(names, newcomer, tmp_path, short=True) == outputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "outputs"),
    [("docs/records.md", 2), ("docs/quickstart.md", 7), ("docs/tutorials/own_policy.md", 1)],
)
def test_comparisons_print_what_a_page_shows(page, outputs, newcomer, tmp_path):
    assert follow_page(page, newcomer, tmp_path, short=False) == outputs


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
    assert follow_page("README.md", newcomer, checkout, short=True) == PAGES["README.md",]


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


@pytest.mark.parametrize("page", pages())
def test_files_that_a_page_links_to_exist(page):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", read(page)):
        assert ((ROOT / page).parent / link).exists(), link


@pytest.mark.parametrize("page", pages())
def test_commands_of_a_page_have_the_options_that_it_names(page):
    for command in commands(page):
        check_command(command.words)


def check_command(words: list[str]) -> None:
    """Parse a command as `fogveil` does, without running it."""
    command: Any = typer.main.get_command(app)
    arguments = words[1:]
    while hasattr(command, "commands") and arguments[0] in command.commands:
        command = command.commands[arguments.pop(0)]
    if "--help" not in arguments:
        command.make_context(" ".join(words), arguments)


def test_a_wrong_option_on_a_page_is_found():
    with pytest.raises(Exception, match="No such option"):
        check_command(["fogveil", "run", "tiny", "--polcy", "jsq"])


@pytest.mark.parametrize("page", pages())
def test_python_of_a_page_can_be_parsed_and_its_imports_exist(page):
    for code in python_blocks(page):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), node.module


@pytest.mark.parametrize("page", pages())
def test_modules_that_a_page_names_exist(page):
    text = read(page)
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
