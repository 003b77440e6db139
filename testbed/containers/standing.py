"""A broker in a container without a testbed around it, for those who try what it refuses."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker import tls
from broker.access import Participants
from broker.address import Address
from broker.knocking import knock
from fogveil.errors import SurroundingsError
from fogveil.identity import BROKER, Credentials
from testbed.containers.engine import Contained, Engine, Mount
from testbed.containers.launch import ContainedBroker, prepare_broker, undisturbed
from testbed.containers.layout import Layout
from testbed.federated.apart import users_of
from testbed.federated.windows import Seats

START_WITHIN = 20.0


@contextmanager
def standing_broker(
    choice: str, folder: Path, own: Credentials, participants: Participants
) -> Iterator[ContainedBroker]:
    """Start the broker of a run as a container; it is reached from this machine."""
    run = secrets.token_hex(16)
    engine = Engine(run, folder)
    try:
        layout = engine.lay_out(lambda block: Layout(Seats((), (), "cloud"), block))
        image, command, broker = prepare_broker(choice, folder, layout, participants)
        user = users_of(run, [BROKER]).get(BROKER)
        if user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, user, user)
        mine = (os.getuid(), os.getgid()) if user is None else (user, user)
        made = engine.create(layout, BROKER, image, command, Mount(folder, mine))
        broker.process = Contained(engine, made)
        address = Address(layout.home(BROKER).address(BROKER), layout.port(BROKER), tls=True)
        _wait(address, own, participants)
        broker.address = str(address)
        yield broker
    finally:
        with undisturbed():
            engine.remove()
            engine.close()


def _wait(address: Address, own: Credentials, participants: Participants) -> None:
    context = tls.for_participant(participants.broker, own)
    deadline = time.monotonic() + START_WITHIN
    while True:
        try:
            knock(address, context, patience=1.0)
        except SurroundingsError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
