"""What `fogveil docker generate` writes means what was asked for, whatever characters it holds."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import tomli_w
import yaml
from support import ROOT, SCENARIOS
from typer.testing import CliRunner

from fogveil.core.errors import InputError
from fogveil.testbed.cli.app import app
from fogveil.testbed.launch.docker import compose, image_build
from fogveil.testbed.scenario import load_scenario
from fogveil.testbed.scenario.load import parse_overrides, shipped_scenarios

TINY = SCENARIOS / "tiny.toml"
NODES = """topology.nodes=[
    {name = "cloud", role = "cloud"}, {name = "1e3", role = "fog"},
    {name = "0o14", role = "fog"}, {name = "yes", role = "cluster"}]"""
LINKS = """topology.links=[
    {between = ["cloud", "1e3"]}, {between = ["1e3", "0o14"], bandwidth = 7},
    {between = ["0o14", "yes"], propagation = 0.25}]"""
POLICY = """
from fogveil.agent.policy import Policy

class First(Policy):
    def place(self, seen):
        return 0
"""


def generate(folder, *words, scenario=TINY, policy="jsq"):
    words = ("docker", "generate", scenario, "--policy", policy, "--out", folder, *words)
    if not any(str(word).startswith("seed=") for word in words):
        words += ("--set", "seed=1")  # that of the files, which is else replaced by a draw
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return yaml.safe_load((folder / "compose.yaml").read_text())


def written(folder):
    return load_scenario(folder / "scenario" / "scenario.toml")


@pytest.mark.parametrize(
    "overrides",
    [
        ["links={bandwidth=300}"],
        ["links.bandwidth={uniform=[1, 2.5]}", "links.propagation=0.5"],
        ["name=yes"],
        ["count=in_system", "loops.to_cloud=1e-3", "seed=340282366920938463463374607431768211455"],
        ["fog.ipt=[100, 200.5, 1e3]", "fog.discipline=sjf"],
        ["fog.ipt={linear=[100, 200]}", "fog.ram=8"],
        ["service={distribution='erlang', shape=3}"],
        ["service={distribution='pareto', tail=1.5}"],
        [NODES, LINKS, "fog.ipt=100", "fog.ram=8"],
        [
            "electre.criteria=[{name='ram', weight=2, veto=0.5}, {name='hops', weight=1}]",
            "electre.queue={name='queue', weight=3}",
        ],
    ],
)
def test_overrides_arrive_as_they_were_given(tmp_path, overrides):
    generate(tmp_path, *(word for text in overrides for word in ("--set", text)))
    assert written(tmp_path) == load_scenario(TINY, parse_overrides(overrides))


def crashes(name):
    return any(event.kind == "crash" for event in load_scenario(name).events)


@pytest.mark.parametrize("name", [n for n in shipped_scenarios() if crashes(n)])
def test_a_crash_is_not_for_compose(tmp_path, name):
    """Compose ends and restarts nobody in the middle of a run."""
    words = ("docker", "generate", name, "--policy", "jsq", "--out", tmp_path / "out")
    done = CliRunner().invoke(app, list(map(str, words)))
    assert isinstance(done.exception, InputError)
    assert "use fogveil run --docker" in str(done.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [n for n in shipped_scenarios() if not crashes(n)])
def test_every_shipped_scenario_can_be_written_anew(tmp_path, name):
    """As a file of its own, for one of its keys is replaced."""
    scenario = load_scenario(name, {"horizon": 12345.5})
    file = getattr(scenario.topology, "file", None)
    if file and not Path(file).exists():
        pytest.skip(f"{file} is not part of the repository")
    generate(tmp_path, "--horizon", "12345.5", scenario=name)
    again = written(tmp_path)
    if file:
        assert Path(again.topology.file).read_bytes() == Path(file).read_bytes()
        topology = again.topology.model_copy(update={"file": file})
        again = again.model_copy(update={"topology": topology})
    assert again == scenario


def test_a_scenario_without_overrides_keeps_its_comments(tmp_path):
    generate(tmp_path)
    assert (tmp_path / "scenario" / "scenario.toml").read_text() == TINY.read_text()


def test_the_files_that_a_scenario_names_come_along(tmp_path):
    """Whatever characters their names, and the names in them, hold."""
    odd = 'it\'s "odd" ${HOME} #1'
    graph, trace = tmp_path / f"{odd}.json", tmp_path / f"{odd}.csv"
    nodes = [{"id": number} for number in range(4)]
    links = [{"source": number, "target": number + 1} for number in range(3)]
    graph.write_text(json.dumps({"nodes": nodes, "links": links}))
    trace.write_text("at the time\n1\n2\n3\n")
    overrides = {
        "topology": {"kind": "file", "file": str(graph)},
        "roles": {"fog": 2, "clusters": 1},
        "sources": {"kind": "trace", "file": str(trace), "columns": {"time": "at the time"}},
        "links.bandwidth": {"attribute": odd, "default": 5.0},
        "fog": {"ipt": 100.0},
    }
    table = tomllib.loads(TINY.read_text())
    for key, value in overrides.items():
        section, _, inner = key.partition(".")
        table[section] = {inner: value} if inner else value
    source = tmp_path / "mine.toml"
    source.write_text(tomli_w.dumps(table))
    generate(tmp_path / "out", scenario=source)
    scenario, again = load_scenario(source), written(tmp_path / "out")
    for file, section in ((graph, again.topology), (trace, again.sources)):
        assert section.file.startswith(str(tmp_path / "out"))
        assert Path(section.file).read_bytes() == file.read_bytes()
    assert again.links == scenario.links
    assert again.sources.columns == scenario.sources.columns


def test_names_of_policies_are_neither_yaml_nor_variables(tmp_path):
    """Compose reads `$$` as `$`; everything else is as YAML says."""
    policy = tmp_path / 'it\'s "my" $HOME: {1e3} #1.py'
    policy.write_text(POLICY)
    document = generate(tmp_path / "out", policy=f"{policy}:First")
    for step in ("prepare", "evaluate"):
        command = document["services"][step]["command"]
        spec = command[command.index("--policy") + 1]
        assert spec == f"/scenario/policy/{policy.name}:First".replace("$", "$$")
    assert (tmp_path / "out" / "scenario" / "policy" / policy.name).read_text() == POLICY


def test_text_that_some_yaml_takes_for_a_number_is_quoted():
    text = compose.to_yaml({"0o14": "1e3", "yes": "no", "a": "b", "user": "1:2", "n": 3})
    assert text == '{"0o14": "1e3", \'yes\': \'no\', a: b, user: "1:2", n: 3}\n'


# --- what images are built from ------------------------------------------------------------------


def test_images_are_built_from_what_the_checkout_holds():
    """The staged files have the paths and contents of the repository's own."""
    files = image_build.context_files()
    for name, path in files.items():
        assert path.read_bytes() == (ROOT / name).read_bytes(), name
    for folder in ("proto", "broker", "provider_node", "agent", "testbed"):
        for path in (ROOT / folder / "fogveil").rglob("*.py"):
            assert path.relative_to(ROOT).as_posix() in files
    for path in (ROOT / "scenarios").rglob("*.toml"):
        assert path.relative_to(ROOT).as_posix() in files


def test_the_dockerfile_copies_nothing_that_is_not_staged(tmp_path):
    image_build.stage_context(tmp_path)
    copied = [
        word
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    assert len(copied) > 6
    for name in copied:
        assert (tmp_path / name).exists(), name


def test_outside_a_checkout_the_folder_holds_what_images_are_built_from(tmp_path, monkeypatch):
    monkeypatch.setattr(compose, "checkout", lambda: None)
    (tmp_path / "images" / "old").mkdir(parents=True)
    document = generate(tmp_path)
    builds = [s["build"] for s in document["services"].values() if "build" in s]
    assert {build["target"] for build in builds} == {
        "testbed",
        *image_build.PARTICIPANT_ROLES,
    }
    assert {build["context"] for build in builds} == {"./images"}
    for name in image_build.context_files():
        assert (tmp_path / "images" / name).is_file()
    assert not (tmp_path / "images" / "old").exists()


def test_a_wheel_holds_what_images_are_built_from(installed):
    """Real files, not the links of the checkout."""
    build_files = installed / "fogveil" / "testbed" / "launch" / "docker" / "images"
    for name in ("Dockerfile", "constraints.txt", "pyproject.toml"):
        assert not (build_files / name).is_symlink()
        assert (build_files / name).read_bytes() == (ROOT / name).read_bytes()
