"""The experimenter's two services of a compose file: before the run and after it."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.launch.docker.broker_setup import set_up_broker
from fogveil.testbed.launch.docker.compose import USER
from fogveil.testbed.launch.docker.layout import BLOCK, Layout
from fogveil.testbed.launch.join_records import join_episodes
from fogveil.testbed.launch.participant_config import Plan, Split, check, roster
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.scenario.world import World, build_world

IDENTITY = "identity"
"""The folder of keys and certificates, which are of no use once a run is over."""


def prepare(scenario: Scenario, plan: Plan, block: IPv4Network, folder: Path) -> None:
    """Write identities and shares of the scenario into the participants' volumes below `folder`."""
    world = build_world(scenario)
    check(plan, world)
    run = secrets.token_hex(16)
    layout = _layout(world, plan, block)
    split = _split(world, plan, folder, run, layout)
    taking_part = split.roster
    for name in layout.members:
        _empty(split.folder_of(name))
    credentials = split.identify(BROKER, BROKER, split.folder_of(BROKER) / IDENTITY)
    broker = set_up_broker(
        plan.broker, split.folder_of(BROKER), layout, run, taking_part if credentials else None
    )
    split.give_to_user(BROKER)
    split.broker, split.own_broker = broker.address, broker.identity is not None
    clock = layout.dial(CLOCK)
    split.clock()
    for name in layout.providers:
        split.provider(name, clock)
    for name in taking_part.sources:
        split.sources(name, clock)
    split.agent(clock, {name: layout.dial(name) for name in layout.providers})
    split.give_to_user(AGENT)


def evaluate(scenario: Scenario, plan: Plan, folder: Path, out: Path) -> dict[str, Any]:
    """Join the participants' records, and copy them into `out` for its owner, without keys."""
    world = build_world(scenario)
    split = _split(world, plan, folder, secrets.token_hex(16), _layout(world, plan, BLOCK))
    seconds = time.time() - (split.folder_of(CLOCK) / "config.json").stat().st_mtime
    begin = time.perf_counter() - seconds
    (result,) = join_episodes(world, plan, split, "mosquitto", out, begin, cpu_seconds=None)
    part, copies = out / "participants.part", out / "participants"
    for path in (part, copies):
        shutil.rmtree(path, ignore_errors=True)
    copy_volumes(folder, part)
    part.replace(copies)  # whole, or not there
    owner = out.stat()
    for path in out.rglob("*"):
        if path.name != ".gitignore":
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    return result


def copy_volumes(folder: Path, target: Path) -> None:
    """Copy the participants' volumes without keys, and nothing that a link in them leads to."""
    shutil.copytree(folder, target, symlinks=True, ignore=_keys_and_special_files)


def _keys_and_special_files(folder: str, names: list[str]) -> list[str]:
    """Return what is not copied: keys, and what a participant put in the place of a file."""
    entries = {name: Path(folder, name).lstat() for name in names}
    return [
        name
        for name, entry in entries.items()
        if name == IDENTITY
        or not (
            stat.S_ISDIR(entry.st_mode) or (stat.S_ISREG(entry.st_mode) and entry.st_nlink == 1)
        )
    ]


def _layout(world: World, plan: Plan, block: IPv4Network) -> Layout:
    return Layout(roster(world, plan.source_processes), block, lifeline=False)


def _split(world: World, plan: Plan, folder: Path, run: str, layout: Layout) -> Split:
    return Split(world, plan, folder, run, layout, dict.fromkeys(layout.members, USER))


def _empty(folder: Path) -> None:
    """Remove what an earlier run left, but not the folder, where a volume is mounted."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
