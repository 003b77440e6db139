"""A broker's files, image and command, for when it runs in a container."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fogveil.broker.acl import BrokerSecurity
from fogveil.broker.address import SCHEMES, Address
from fogveil.broker.launcher import ACCESS
from fogveil.broker.mosquitto import CONFIGURATION, PLUGIN, write_files
from fogveil.core.errors import InputError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import BROKER, Identity
from fogveil.protocol.roster import Roster
from fogveil.testbed.launch.docker.engine_client import PARTICIPANT_FOLDER
from fogveil.testbed.launch.docker.image_build import MOSQUITTO, image_of
from fogveil.testbed.launch.docker.layout import EVERY_INTERFACE, Layout

PLUGIN_PATH = Path("/usr/lib") / PLUGIN
"""Where the public image of mosquitto has its plugin."""
BUILTIN = "builtin"
MOSQUITTO_CHOICES = ("auto", "mosquitto")


@dataclass(frozen=True)
class BrokerSetup:
    """What to run as the broker, and how participants know it."""

    kind: str
    image: str
    command: list[str]
    address: str
    identity: Identity | None


def check_broker(choice: str) -> None:
    """Refuse a broker outside of the containers' networks."""
    if choice.startswith(SCHEMES):
        raise InputError(
            f"--broker {choice}: the containers' networks have no way out; choose auto, "
            "mosquitto or builtin"
        )
    if choice not in (BUILTIN, *MOSQUITTO_CHOICES):
        raise InputError(f"--broker {choice}: expected auto, mosquitto or builtin")


def set_up_broker(
    choice: str, folder: Path, layout: Layout, run: str, roster: Roster | None
) -> BrokerSetup:
    """Write the broker's files; for a roster it uses TLS and controls their access."""
    check_broker(choice)
    address = Address(layout.service(BROKER), layout.port(BROKER), tls=roster is not None)
    security = None
    if roster:
        credentials = Credentials(Path(PARTICIPANT_FOLDER) / "identity")
        security = BrokerSecurity.for_run(run, roster, credentials)
    identity = security.identity if security else None
    if choice == BUILTIN:
        command = ["python", "-P", "-m", "fogveil.broker", "--host", EVERY_INTERFACE]
        command += ["--port", str(address.port)]
        if security:
            security.access.write(folder / ACCESS)
            command += ["--access", ACCESS, "--identity", "identity"]
        return BrokerSetup(BUILTIN, image_of(BROKER), command, str(address), identity)
    write_files(folder, Address(EVERY_INTERFACE, address.port), security, PLUGIN_PATH)
    command = ["mosquitto", "-c", CONFIGURATION]
    return BrokerSetup("mosquitto", MOSQUITTO, command, str(address), identity)
