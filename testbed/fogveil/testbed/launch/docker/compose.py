"""Writing a folder in which `docker compose up` alone runs a scenario to its end.

Two services of the experimenter stand around the run: `prepare` issues identities and writes every
participant's share of the scenario into a volume that only this participant mounts; `evaluate`
joins the records when all have ended. So the folder holds the scenario, and no key.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import yaml

import fogveil.agent.policies as policies
from fogveil.agent.policy_files import read_policy_files
from fogveil.broker.mosquitto import CONFIGURATION
from fogveil.protocol.identity import AGENT, BROKER, CLOCK, PROVIDER, SOURCES
from fogveil.testbed.launch.docker.engine_client import (
    NO_FORWARDING,
    PARTICIPANT_FOLDER,
    PIDS_LIMIT,
    TMPFS,
)
from fogveil.testbed.launch.docker.image_build import (
    EXPERIMENTER,
    MOSQUITTO,
    checkout,
    image_of,
    stage_context,
    target_of,
)
from fogveil.testbed.launch.docker.layout import Layout
from fogveil.testbed.launch.interface import PROGRAMS
from fogveil.testbed.scenario import Scenario

USER = 10001
"""The user of the images."""
SCENARIO, RUNS, IMAGES = "scenario", "runs", "images"
"""Folders beside the compose file: what is run, its records, and what the images are built from."""
SCENARIO_FILE = f"/{SCENARIO}/scenario.toml"
PARTICIPANTS = "/participants"
"""Where the experimenter's services mount the volumes of all participants."""

HEAD = """\
# Scenario {name} under {policy}, a container for each participant:
#
#     docker compose up                 runs it to its end; the records are in ./runs
#     docker compose down --volumes     removes every container, network and volume
#
# Written by `fogveil docker generate`. Every participant has a volume of its own, with its share of
# the scenario and its key, which no other one mounts. Every provider has two networks of its own:
# boundary-NAME, where it meets the agent, and relay-NAME, where it dials the clock and the broker.
# The broker ends when the clock has: a container that has ended has no name on its networks.

"""
BROKER_COMMAND = (
    f"mosquitto -c {CONFIGURATION} & while getent hosts {CLOCK} >/dev/null; do sleep 1; done; "
    "kill $!; wait"
)
PREPARED = {"prepare": {"condition": "service_completed_successfully"}}
PLAIN = re.compile(r"[A-Za-z/.][A-Za-z0-9/._-]*")
"""Text that no version of YAML takes for anything else, unless it is a word such as `yes`."""

ONE_LINE = 100
"""Characters in a list or table that is written on one line."""

Service = dict[str, Any]


@dataclass(frozen=True)
class Composition:
    """What a compose folder is written for."""

    scenario: Scenario
    file: Path
    """Where the scenario was read from."""
    overridden: bool
    """Whether the scenario differs from its file."""
    policy: str
    layout: Layout


def generate(composition: Composition, folder: Path) -> Path:
    """Write the folder; return the compose file."""
    (folder / SCENARIO).mkdir(parents=True, exist_ok=True)
    (folder / RUNS).mkdir(exist_ok=True)
    (folder / RUNS / ".gitignore").write_text("*\n!.gitignore\n", encoding="utf-8")
    _write_scenario(composition, folder / SCENARIO)
    policy = _copy_policy(composition.policy, folder / SCENARIO)
    head = HEAD.format(name=composition.scenario.name, policy=policies.label_of(composition.policy))
    content = document(composition, policy, _build_context(folder))
    path = folder / "compose.yaml"
    path.write_text(head + to_yaml(content), encoding="utf-8")
    return path


# --- what is copied into the folder ------------------------------------------------------------


def _write_scenario(composition: Composition, folder: Path) -> None:
    """Write the scenario, with overrides applied, and copy the files that it names."""
    scenario = composition.scenario.model_dump(exclude_unset=True, exclude_none=True)
    names_files = False
    for section in ("topology", "sources"):
        file = scenario[section].get("file")
        if file is not None:
            names_files = True
            copied = Path(section) / Path(file).name
            (folder / section).mkdir(exist_ok=True)
            shutil.copyfile(file, folder / copied)
            scenario[section]["file"] = copied.as_posix()
    target = folder / "scenario.toml"
    if composition.overridden or names_files:
        target.write_text(tomli_w.dumps(scenario), encoding="utf-8")
    else:
        shutil.copyfile(composition.file, target)  # as it is, with its comments


def _copy_policy(spec: str, folder: Path) -> str:
    """Copy the files of a policy that is not ours; return what it is called in a container."""
    path = policies.file_of(spec)
    if path is None:
        return spec
    (folder / "policy").mkdir(exist_ok=True)
    copied = f"/{SCENARIO}/policy/{path.name}"
    if policies.is_foreign(spec):
        read_policy_files(path).write_to(folder / "policy")
        return f"{copied}:{policies.parse_file_spec(spec)[1]}"
    shutil.copyfile(path, folder / "policy" / path.name)
    return copied


def _build_context(folder: Path) -> str:
    """Return the folder that images are built from: the checkout, else a copy of its shape."""
    root = checkout()
    if root is not None:
        return os.path.relpath(root, folder.absolute())
    shutil.rmtree(folder / IMAGES, ignore_errors=True)
    stage_context(folder / IMAGES)
    return f"./{IMAGES}"


# --- the compose file ----------------------------------------------------------------------------


def document(composition: Composition, policy: str, context: str) -> dict[str, Any]:
    """Return the content of the compose file."""
    layout = composition.layout
    names = (CLOCK, BROKER, *layout.roster.sources, *layout.providers, AGENT)
    run = [SCENARIO_FILE, "--policy", policy]
    services = {"prepare": _prepare(layout, names, run)}
    services |= {layout.service(name): _participant(layout, name) for name in names}
    services["evaluate"] = _evaluate(layout, names, run)
    _add_builds(services, context)
    return {
        "name": f"fogveil-{layout.slug(composition.scenario.name)}",
        "services": services,
        "networks": {
            network.name: {
                "internal": True,
                "ipam": {"config": [{"subnet": str(network.subnet), "gateway": network.gateway}]},
            }
            for network in layout.networks
        },
        "volumes": {layout.service(name): {} for name in names},
    }


def _prepare(layout: Layout, names: tuple[str, ...], run: list[str]) -> Service:
    subnet = ["--subnet", str(layout.block)]
    command = ["fogveil", "docker", "prepare", *run, *subnet, "--out", PARTICIPANTS]
    return _experimenter(command, [f"./{SCENARIO}:/{SCENARIO}:ro", *_volumes(layout, names)])


def _evaluate(layout: Layout, names: tuple[str, ...], run: list[str]) -> Service:
    command = ["fogveil", "docker", "evaluate", *run, "--from", PARTICIPANTS, "--out", f"/{RUNS}"]
    volumes = [f"./{SCENARIO}:/{SCENARIO}:ro", f"./{RUNS}:/{RUNS}"]
    volumes += [f"{volume}:ro" for volume in _volumes(layout, names)]
    return _experimenter(command, volumes) | {
        "depends_on": {
            layout.service(name): {"condition": "service_completed_successfully"}
            for name in names
            if name != BROKER
        }
    }


def _volumes(layout: Layout, names: tuple[str, ...]) -> list[str]:
    return [f"{layout.service(name)}:{PARTICIPANTS}/{layout.folder(name)}" for name in names]


def _experimenter(command: list[str], volumes: list[str]) -> Service:
    return {
        "image": image_of(EXPERIMENTER),
        "user": "root",
        "network_mode": "none",
        "read_only": True,
        "tmpfs": ["/tmp"],  # noqa: S108 (the container's own)
        "cap_drop": ["ALL"],
        "cap_add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"],
        "security_opt": ["no-new-privileges:true"],
        "command": command,
        "volumes": volumes,
    }


def _participant(layout: Layout, name: str) -> Service:
    if name == BROKER:
        image, command = MOSQUITTO, ["sh", "-c", BROKER_COMMAND]
    else:
        role = layout.roster.role_of(name) or name
        image = image_of(role)
        command = ["python", "-P", "-m", PROGRAMS[role], "--config", "config.json"]
    service: Service = {
        "image": image,
        "command": command,
        "user": f"{USER}:{USER}",
        "working_dir": PARTICIPANT_FOLDER,
        "read_only": True,
        "tmpfs": [f"{path}:{options}" for path, options in TMPFS.items()],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "pids_limit": PIDS_LIMIT,
        "sysctls": dict(NO_FORWARDING),
        "stop_grace_period": "3s",
        "depends_on": PREPARED,
        "volumes": [f"{layout.service(name)}:{PARTICIPANT_FOLDER}"],
        "networks": {
            network.name: {"ipv4_address": network.address(name)} for network in layout.of(name)
        },
    }
    if name == BROKER:
        service["init"] = True  # for it runs a shell
        service["depends_on"] = PREPARED | {layout.service(CLOCK): {"condition": "service_started"}}
    return service


def _add_builds(services: Mapping[str, Service], context: str) -> None:
    """Let the first service of each image of ours build it, always: an old one would not fit."""
    targets = {
        image_of(role): target_of(role) for role in (EXPERIMENTER, PROVIDER, AGENT, SOURCES, CLOCK)
    }
    for service in services.values():
        if target := targets.pop(service["image"], None):
            service["build"] = {"context": context, "target": target}
            service["pull_policy"] = "build"


# --- YAML ----------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes short collections on one line, and quotes what some version of YAML would convert."""

    def ignore_aliases(self, _data: object) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        style = None if PLAIN.fullmatch(text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def represent_items(self, items: list[Any]) -> yaml.Node:
        return self.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=_is_short(items))

    def represent_pairs(self, pairs: dict[str, Any]) -> yaml.Node:
        short = _is_short([*pairs, *pairs.values()])
        return self.represent_mapping("tag:yaml.org,2002:map", pairs.items(), flow_style=short)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(list, _Dumper.represent_items)
_Dumper.add_representer(dict, _Dumper.represent_pairs)


def _is_short(items: list[Any]) -> bool:
    plain = not any(isinstance(item, (list, dict)) for item in items)
    return plain and sum(len(str(item)) for item in items) <= ONE_LINE


def to_yaml(content: Any) -> str:
    """Return the text of a compose file, in which `$` stands for nothing but itself."""
    return yaml.dump(_escape(content), Dumper=_Dumper, sort_keys=False, width=2 * ONE_LINE)


def _escape(content: Any) -> Any:
    """Double every `$`: compose would take it for a variable."""
    if isinstance(content, str):
        return content.replace("$", "$$")
    if isinstance(content, Mapping):
        return {_escape(key): _escape(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_escape(value) for value in content]
    return content
