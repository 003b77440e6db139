"""A broker in a container without a testbed around it, to test what it refuses."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fogveil.broker import tls
from fogveil.broker.address import Address
from fogveil.broker.healthcheck import check_reachable
from fogveil.core.errors import InfrastructureError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import BROKER
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.docker.docker_launcher import DockerLauncher
from fogveil.testbed.launch.interface import BrokerHandle
from fogveil.testbed.launch.process_environment import users_of
from fogveil.testbed.launch.testbed import uninterrupted

START_WITHIN = 20.0


@contextmanager
def broker_container(
    choice: str, folder: Path, credentials: Credentials, run: str, roster: Roster
) -> Iterator[BrokerHandle]:
    """Start the broker of a run as a container; its address is one that this machine reaches."""
    name = secrets.token_hex(16)  # of what is created here: identities of one run are tried often
    launcher = DockerLauncher(choice)
    try:
        layout = launcher.prepare(name, Roster((), (), "cloud"), folder)
        user = users_of(name, [BROKER]).get(BROKER)
        broker = launcher.start_broker(folder, run, roster, credentials, user)
        address = Address(launcher.reach_host(BROKER), layout.port(BROKER), tls=True)
        _wait(address, tls.client_context(broker.identity, credentials))
        yield broker.at(str(address))
    finally:
        with uninterrupted():
            launcher.close()


def _wait(address: Address, context: ssl.SSLContext) -> None:
    """Wait until the broker accepts connections."""
    deadline = time.monotonic() + START_WITHIN
    while True:
        try:
            check_reachable(address, context, timeout=10.0)
        except InfrastructureError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
