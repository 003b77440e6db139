"""Bringing a testbed up as the plan wants it: a process for each participant, or a container."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testbed.federated.launch import Testbed
from testbed.federated.split import Plan
from testbed.world import World


def bring_up(
    world: World,
    plan: Plan,
    folder: Path,
    *,
    hold: bool = False,
    say: Callable[[str], None] = lambda _words: None,
) -> Testbed:
    """Return a testbed to enter; `say` is told what takes long before anything runs."""
    if plan.contained:
        from testbed.containers.launch import ContainerTestbed

        return ContainerTestbed(world, plan, folder, hold=hold, say=say)
    return Testbed(world, plan, folder, hold=hold)
