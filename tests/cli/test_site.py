"""The docs site: it builds without a warning, says everything about the code, needs no network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from federated_support import once
from support import ROOT

from docs.website import api_page, command_page, key_pages
from docs.website.pictures import draw
from docs.website.repository_links import source_pages
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.relearning import AdaptationHyperparameters
from fogveil.testbed.scenario.models import Scenario

LOADED = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="([^"]+)"')
IN_CSS = re.compile(r"url\(([^)]+)\)|@import\s+([^;]+)")


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does; `strict` in mkdocs.yml makes a warning an error.

    Not so with --quiet: what is not printed is not counted.
    """
    command = (sys.executable, "-m", "mkdocs", "build", "--config-file", str(config))
    return subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    def make(folder: Path) -> str:
        done = build(ROOT / "mkdocs.yml", folder / "site")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stderr
        return str(folder / "site")

    return Path(once(tmp_path_factory, "site", make))


def test_the_site_builds_and_every_page_of_the_docs_is_on_it(site):
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 15
    for page in pages:
        assert (site / page).with_suffix(".html").is_file(), page


def test_a_page_asks_nothing_of_the_network(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 30
    for page in pages:
        for address in LOADED.findall(page.read_text(encoding="utf-8")):
            assert not address.startswith(("http:", "https:", "//")), (page, address)
    for sheet in site.rglob("*.css"):
        for found in IN_CSS.findall(sheet.read_text(encoding="utf-8")):
            assert "http" not in "".join(found).split("data:")[0], (sheet, found)
    for picture in site.rglob("*.svg"):
        for found in IN_CSS.findall(picture.read_text(encoding="utf-8")):
            assert "http" not in "".join(found), (picture, found)


def test_drawings_are_part_of_their_pages_and_follow_light_and_dark(site):
    page = (site / "architecture.html").read_text(encoding="utf-8")
    assert page.count('<svg class="fogveil"') == 4


def test_links_to_sources_lead_to_pages_that_show_them(site):
    shown = (site / "source/proto/fogveil/v1/boundary.proto.html").read_text(encoding="utf-8")
    assert "QueueService" in shown
    listed = (site / "source/scenarios.html").read_text(encoding="utf-8")
    assert 'href="scenarios/tiny.toml.html"' in listed


def test_broken_links_are_found(tmp_path):
    """By the same configuration, on two pages alone, so that it takes a second."""
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/glossary.md", tmp_path / "docs")
    wrong = ("nowhere.md", "glossary.md#nowhere", "../nowhere.py")
    links = " ".join(f"[link]({address})" for address in wrong)
    (tmp_path / "docs/index.md").write_text(f"# Front\n\n{links}\n", encoding="utf-8")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    rest = re.sub(r"^(hooks|extra_css|not_in_nav|exclude_docs|  logo|  favicon):.*", "", settings,
                  flags=re.MULTILINE)  # fmt: skip
    (tmp_path / "mkdocs.yml").write_text(rest, encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    for address in wrong:
        assert f"'{address}'" in done.stderr


def test_the_reference_has_every_scenario_key_with_a_meaning():
    page = key_pages.scenario_page()
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$", page, re.MULTILINE)
    models = [Scenario.model_json_schema(), *Scenario.model_json_schema()["$defs"].values()]
    fields = [
        key
        for model in models
        for key, value in model.get("properties", {}).items()
        if "const" not in value
    ]
    assert sorted(row[0] for row in rows) == sorted(fields)
    assert all(all(row) for row in rows)
    assert "| `tail` | number > 1, ≤ 1,000 | none |" in page
    assert "| `fog` | integer ≥ 1 | **required** |" in page


def test_the_reference_has_every_hyperparameter():
    page = key_pages.hyperparameters_page()
    for key in Hyperparameters.model_fields:
        assert f"| `{key}` |" in page
    assert "| `buffer_capacity` | integer ≥ 200 | `1000000` |" in page
    assert "| `parl` | none |" in page
    assert "| `training_steps` | `150000` | `30000` |" in page, "of a transfer"
    for key in AdaptationHyperparameters.model_fields:
        assert f"| `{key}` |" in page


def test_the_reference_has_every_command_and_option():
    page = command_page.page()
    assert {"run", "scenario show", "docker generate", "audit"} <= command_page.command_names()
    section = page.partition("## `fogveil run`")[2].partition("\n## ")[0]
    assert "| `--policy <str>` |" in section
    assert "--source-processes" in section
    assert "--adapt" in section


def test_the_reference_of_a_module_has_its_public_names():
    page = api_page.page("fogveil.agent.policy")
    assert "## `Policy`" in page
    assert "### `Policy.place`" in page
    assert "Return the number of the node that shall serve this workload." in page
    assert "## `dataclass`" not in page
    assert "Policy.learn(observation: Observation, node: int) -> None" in page


def test_the_signature_of_a_function_with_many_parameters_has_them_in_order():
    page = api_page.page("fogveil.testbed.scenario")
    assert "load_scenario(\n    spec: Path | str | Table,\n" in page


def test_a_picture_holds_its_text_and_names_no_font_from_elsewhere():
    picture = draw("fogveil x", "a < b {c}\n\x1b[1;36m20\x1b[0m runs\n", "Title & more")
    assert "<desc>a &lt; b {c}\n20 runs\n</desc>" in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_a_folder_that_a_page_links_to_brings_what_it_holds():
    pages = dict(source_pages({"docs/a.md": "[s](../scenarios) `[n](../no)` [m](../missing.py)"}))
    assert "source/scenarios.md" in pages
    assert "horizon = 2000" in pages["source/scenarios/tiny.toml.md"]
    assert not any("missing" in address for address in pages)
