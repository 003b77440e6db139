"""Running a testbed under the auditor's eyes: wire taps between all, and a watch over the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fogveil.core.errors import InfrastructureError
from fogveil.protocol.identity import AGENT, BROKER, CLOCK
from fogveil.testbed.launch.factory import create_testbed
from fogveil.testbed.launch.join_records import join
from fogveil.testbed.launch.local_launcher import LocalLauncher
from fogveil.testbed.launch.participant_config import Plan
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.privacy.audit.evidence import Evidence
from fogveil.testbed.privacy.audit.host_watch import HostWatch
from fogveil.testbed.privacy.audit.wire_tap import WireTap
from fogveil.testbed.scenario.world import World

Step = Callable[[Testbed], None]


def _nothing(_testbed: Testbed) -> None:
    pass


def run_tapped(
    world: World,
    plan: Plan,
    folder: Path,
    before_agent: Step = _nothing,
    with_agent: Step = _nothing,
) -> Evidence:
    """Run a testbed in `folder` and return all that the auditor saw of it.

    `before_agent` is called when everybody but the agent has started, `with_agent` while the
    agent's process is there and, where it is enclosed, waits: however long that takes, it has not
    joined, and nobody misses it.
    """
    with (
        HostWatch(folder) as watch,
        WireTap(folder / "tap") as tap,
        create_testbed(world, plan, folder / "testbed", hold=True, interposer=tap) as testbed,
    ):
        before_agent(testbed)
        watch.watch(testbed)
        launcher = testbed.launcher
        assert isinstance(launcher, LocalLauncher)

        def examine_agent() -> None:
            with_agent(testbed)
            launcher.let_go(AGENT)

        launcher.hold(AGENT)
        testbed.release(examine_agent)
        watch.sample()
        watch.log.reports = list(testbed.reports())
    split = testbed.split
    watch.finish()
    watch.log.told = tap.told()
    hashes: list[str] = []
    disagreements: list[str] = []
    for episode, (_, draw) in enumerate(plan.episodes):
        try:
            hashes.append(join(world.drawn(draw), split, episode, []))
        except InfrastructureError as error:
            disagreements.append(f"episode {episode}: {error}")
    mint = split.mint
    assert mint is not None
    evidence = Evidence(
        world=world,
        plan=plan,
        wire=tap.log,
        certificates={
            name: mint.issued[split.folder_of(name) / "identity"]
            for name in (*split.roster.all, CLOCK, BROKER)
        },
        authority=mint.authority,
        hashes=hashes,
        disagreements=disagreements,
        host=watch.log,
    )
    evidence.traffic.require_ends()
    return evidence
