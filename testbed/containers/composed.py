"""What the experimenter's two services of a compose file do, before and after the run."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from broker.access import Participants
from fogveil.identity import AGENT, BROKER, CLOCK
from testbed.containers.compose import USER
from testbed.containers.launch import prepare_broker
from testbed.containers.layout import Layout
from testbed.federated.run import conclude
from testbed.federated.split import Plan, Split, check
from testbed.scenario import Scenario
from testbed.world import build_world

KEYS = "identity"
"""Not taken out of a volume: keys are of no use once a run is over."""


def prepare(scenario: Scenario, plan: Plan, block: IPv4Network, folder: Path) -> None:
    """Give everybody an identity and a share of the scenario, in folders that are empty then."""
    world = build_world(scenario)
    check(plan, world)
    run = secrets.token_hex(16)
    split = _split(world, plan, folder, run, block)
    layout, seats = split.site, split.seats
    assert isinstance(layout, Layout)
    for name in layout.members:
        _empty(split.folder_of(name))
    own = split.identify(BROKER, BROKER, split.folder_of(BROKER) / KEYS)
    participants = Participants(run, seats.sources, seats.fogs, seats.cloud)
    _, _, broker = prepare_broker(
        plan.broker, split.folder_of(BROKER), layout, participants if own else None
    )
    split.hand_over(BROKER)
    split.broker, split.own_broker = broker.address, broker.identity is not None
    clock = layout.dial(CLOCK)
    split.clock()
    for name in layout.providers:
        split.provider(name, clock)
    for name in seats.sources:
        split.sources(name, clock)
    split.agent(clock, {name: layout.dial(name) for name in layout.providers})
    split.hand_over(AGENT)


def evaluate(scenario: Scenario, plan: Plan, folder: Path, out: Path) -> dict[str, Any]:
    """Join what the participants recorded, and leave it to whom the folder belongs."""
    world = build_world(scenario)
    split = _split(world, plan, folder, secrets.token_hex(16))
    begun = split.folder_of(CLOCK) / "config.json"
    wall = time.perf_counter() - (time.time() - begun.stat().st_mtime)
    (result,) = conclude(world, plan, split, "mosquitto", out, (wall, {"cpu_seconds": None}))
    target = out / "participants"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(KEYS))
    owner = out.stat()
    for path in out.rglob("*"):
        if path.name != ".gitignore":
            os.chown(path, owner.st_uid, owner.st_gid)
    return result


def _split(
    world: Any, plan: Plan, folder: Path, run: str, block: IPv4Network | None = None
) -> Split:
    seats = Split(world, plan, folder, run, users={}).seats
    layout = Layout(seats, block, lifeline=False) if block else Layout(seats, lifeline=False)
    users = dict.fromkeys(layout.members, USER)
    return Split(world, plan, folder, run, layout, users)


def _empty(folder: Path) -> None:
    """Remove what a run before has left: the folder itself is where a volume is mounted."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
