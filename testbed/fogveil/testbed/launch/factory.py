"""Creating a testbed as its plan wants it: with a process or a container for each participant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fogveil.testbed.launch.interface import Interposer, Launcher
from fogveil.testbed.launch.local_launcher import LocalLauncher
from fogveil.testbed.launch.participant_config import Plan, exposed_sizes
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.scenario.world import World


def create_testbed(
    world: World,
    plan: Plan,
    folder: Path,
    *,
    hold: bool = False,
    interposer: Interposer | None = None,
    progress: Callable[[str], None] = lambda _line: None,
    goes_on: str | None = None,
) -> Testbed:
    """Return a testbed to enter.

    `progress` is told what is not protected, and of what takes long, as building images does.
    """
    if exposed := exposed_sizes(world):
        progress(exposed)
    launcher: Launcher
    if plan.contained:
        from fogveil.testbed.launch.docker.docker_launcher import DockerLauncher

        launcher = DockerLauncher(plan.broker, progress)
    else:
        launcher = LocalLauncher(plan)
    return Testbed(world, plan, folder, launcher, hold=hold, interposer=interposer, goes_on=goes_on)
