"""Writing a folder in which `docker compose up` alone runs a scenario to its end.

Two services of the experimenter stand around the run: `prepare` mints identities and gives every
participant its share of the scenario, in a volume that only that participant mounts; `evaluate`
joins what they recorded when all have ended. So nothing secret lies in the folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import agent.policies as policies
from broker.mosquitto import CONFIGURATION
from fogveil.identity import AGENT, BROKER, CLOCK
from testbed.containers.engine import INSIDE, MOSQUITTO, PROVIDER, ROOT, TESTBED
from testbed.containers.layout import Layout
from testbed.scenario import Scenario

USER = 10001
"""The images' own."""
SCENARIO = "scenario"
WITHIN = f"/{SCENARIO}"
ALL = "/participants"
RUNS = "runs"
MODULES = {CLOCK: "testbed.federated.clock", AGENT: "agent"}

HEAD = """\
# Scenario {name} under {policy}, a container for each participant:
#
#     docker compose up                 runs it to its end; the records are in ./runs
#     docker compose down --volumes     removes every container, network and volume
#
# Written by `fogveil docker generate`. Every participant has a volume of its own, with its share of
# the scenario and its key, which no other one mounts. Every provider has two networks of its own:
# boundary-NAME, where it meets the agent, and relay-NAME, where it dials the clock and the broker.

name: {project}

x-contained: &contained
  user: "{user}:{user}"
  working_dir: {inside}
  read_only: true
  tmpfs: ["/tmp:size=16m,mode=1777,noexec,nosuid"]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  pids_limit: 256
  sysctls: {{net.ipv4.ip_forward: 0}}
  stop_grace_period: 3s
  depends_on:
    prepare: {{condition: service_completed_successfully}}

x-experimenter: &experimenter
  image: {testbed}
  user: root
  network_mode: none
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  cap_add: [CHOWN, DAC_OVERRIDE, FOWNER]
  security_opt: ["no-new-privileges:true"]
  healthcheck: {{disable: true}}

services:
"""
BROKER_COMMAND = (
    f"mosquitto -c {CONFIGURATION} & while getent hosts {CLOCK} >/dev/null; do sleep 1; done; "
    "kill $$!; wait"
)


@dataclass(frozen=True)
class Composed:
    """What a folder is written for."""

    scenario: Scenario
    file: Path
    """Where the scenario was read from."""
    overrides: dict[str, Any]
    """What replaces its keys."""
    policy: str
    block: IPv4Network


def generate(composed: Composed, layout: Layout, folder: Path) -> Path:
    """Write the folder; return the compose file."""
    (folder / SCENARIO).mkdir(parents=True, exist_ok=True)
    (folder / RUNS).mkdir(exist_ok=True)
    (folder / RUNS / ".gitignore").write_text("*\n!.gitignore\n", encoding="utf-8")
    shutil.copyfile(composed.file, folder / SCENARIO / "scenario.toml")
    words = [f"{WITHIN}/scenario.toml", "--policy", _policy(composed.policy, folder)]
    for key, value in (composed.overrides | _files(composed, folder)).items():
        words += ["--set", f"{key}={value}"]
    path = folder / "compose.yaml"
    path.write_text(text(composed, layout, words, _context(folder)), encoding="utf-8")
    return path


def _policy(spec: str, folder: Path) -> str:
    """Take the file of a policy that is not ours along."""
    path = policies.file_of(spec)
    if path is None:
        return spec
    shutil.copyfile(path, folder / SCENARIO / path.name)
    _, colon, name = spec.rpartition(":")
    return f"{WITHIN}/{path.name}{f':{name}' if colon and spec.endswith(name) else ''}"


def _files(composed: Composed, folder: Path) -> dict[str, str]:
    """Take the files along that the scenario names."""
    found = {}
    for section in ("topology", "sources"):
        named = getattr(getattr(composed.scenario, section), "file", None)
        if named is not None:
            shutil.copyfile(named, folder / SCENARIO / Path(named).name)
            found[f"{section}.file"] = Path(named).name
    return found


def _context(folder: Path) -> str | None:
    """Return where the Dockerfile is, seen from the folder; None where there is none."""
    if not (ROOT / "Dockerfile").is_file():
        return None
    return os.path.relpath(ROOT, folder.absolute())


def text(composed: Composed, layout: Layout, words: list[str], context: str | None) -> str:
    """Return the compose file."""
    head = HEAD.format(
        name=composed.scenario.name,
        policy=policies.label_of(composed.policy),
        project=f"fogveil-{layout.slug(composed.scenario.name)}",
        user=USER,
        inside=INSIDE,
        testbed=TESTBED,
    )
    names = (CLOCK, BROKER, *layout.seats.sources, *layout.providers, AGENT)
    lines = [*_prepare(layout, names, words, context)]
    for name in names:
        lines += ["", *_participant(layout, name, context)]
    lines += ["", *_evaluate(layout, names, words), "", "networks:"]
    for network in layout.networks:
        pool = f"{{subnet: {network.subnet}, gateway: {network.gateway}}}"
        lines.append(f"  {network.name}: {{internal: true, ipam: {{config: [{pool}]}}}}")
    lines += ["", "volumes:", *(f"  {layout.service(name)}:" for name in names)]
    return head + "\n".join(lines) + "\n"


def _build(target: str, context: str | None) -> Iterator[str]:
    if context is not None:
        yield f"    build: {{context: {context}, target: {target.removeprefix('fogveil-')}}}"


def _command(words: Iterable[str]) -> str:
    quoted = ", ".join(f'"{word}"' for word in words)
    return f"    command: [{quoted}]"


def _prepare(
    layout: Layout, names: tuple[str, ...], words: list[str], context: str | None
) -> Iterator[str]:
    yield "  prepare:"
    yield "    <<: *experimenter"
    yield from _build(TESTBED, context)
    more = ["--subnet", str(layout.block)]
    yield _command(["fogveil", "docker", "prepare", *words, *more, "--out", ALL])
    yield "    volumes:"
    yield f"      - ./{SCENARIO}:{WITHIN}:ro"
    yield from (f"      - {layout.service(name)}:{ALL}/{layout.folder(name)}" for name in names)


def _participant(layout: Layout, name: str, context: str | None) -> Iterator[str]:
    service = layout.service(name)
    yield f"  {service}:"
    yield "    <<: *contained"
    if name == BROKER:
        yield f"    image: {MOSQUITTO}"
        yield "    init: true"
        yield "    # It ends when the clock has: what has no address any more has no name either."
        yield _command(["sh", "-c", BROKER_COMMAND])
        yield "    depends_on:"
        yield "      prepare: {condition: service_completed_successfully}"
        yield f"      {layout.service(CLOCK)}: {{condition: service_started}}"
    else:
        provider = name in layout.providers
        yield f"    image: {PROVIDER if provider else TESTBED}"
        if name == layout.providers[0]:
            yield from _build(PROVIDER, context)
        module = MODULES.get(name, "provider_node" if provider else "testbed.federated.sources")
        yield _command(["python", "-P", "-m", module, "--config", "config.json"])
    yield f"    volumes: [{service}:{INSIDE}]"
    yield "    networks:"
    for network in layout.of(name):
        yield f"      {network.name}: {{ipv4_address: {network.address(name)}}}"


def _evaluate(layout: Layout, names: tuple[str, ...], words: list[str]) -> Iterator[str]:
    yield "  evaluate:"
    yield "    <<: *experimenter"
    yield _command(["fogveil", "docker", "evaluate", *words, "--from", ALL, "--out", f"/{RUNS}"])
    yield "    volumes:"
    yield f"      - ./{SCENARIO}:{WITHIN}:ro"
    yield f"      - ./{RUNS}:/{RUNS}"
    yield from (f"      - {layout.service(name)}:{ALL}/{layout.folder(name)}:ro" for name in names)
    yield "    depends_on:"
    for name in names:
        if name != BROKER:
            service = layout.service(name)
            yield f"      {service}: {{condition: service_completed_successfully}}"
