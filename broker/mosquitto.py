"""mosquitto, set up for one run: on loopback, on a port and in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from broker import tether
from broker.address import Address
from broker.packets import LIMIT, PACKET_LIMIT
from fogveil.errors import InputError

CONFIGURATION = "mosquitto.conf"
PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
"""Debian installs it where only an administrator's PATH looks."""


def find() -> str | None:
    """Return the path of the executable, if it is installed."""
    return shutil.which("mosquitto", path=PLACES)


def required() -> str:
    """Return the path of the executable, or say how to get one."""
    found = find()
    if found is None:
        raise InputError(
            "broker: mosquitto is not installed: get it with `apt install mosquitto`, "
            "or choose the broker `builtin`"
        )
    return found


def launch(executable: str, folder: Path, address: Address, log: int) -> subprocess.Popen[bytes]:
    """Start mosquitto at an address; what it has to say goes to the descriptor `log`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(folder / CONFIGURATION, flags, 0o600), "w") as out:
        out.write(configuration(address))
    return subprocess.Popen(  # noqa: S603 - no shell, and nothing a stranger chose
        [
            *(sys.executable, "-I", "-S", tether.__file__, str(os.getpid())),
            *(executable, "-c", CONFIGURATION),
        ],
        cwd=folder,  # so its files have plain names in the configuration
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        umask=0o077,
        start_new_session=True,  # Ctrl-C in a terminal is for the launcher alone
    )


def configuration(address: Address) -> str:
    """Return the text of the configuration file."""
    sections = (_listener(address), _access(), _no_limits(), _files())
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _listener(address: Address) -> list[str]:
    return [
        "# Written for one run; the next run writes it anew.",
        f"listener {address.port} {address.host}",
        "set_tcp_nodelay true",
    ]


def _access() -> list[str]:
    """Who may do what: everybody everything, as long as participants carry no identities."""
    return ["allow_anonymous true"]


def _no_limits() -> list[str]:
    """Let nothing be dropped but what is larger than clients take: losses would stall a run."""
    return [
        "max_queued_messages 0",
        "max_queued_bytes 0",
        "max_inflight_messages 0",
        "max_inflight_bytes 0",
        f"message_size_limit {LIMIT}",
        f"max_packet_size {PACKET_LIMIT}",
        "sys_interval 0",
    ]


def _files() -> list[str]:
    lines = [
        "persistence true",
        "persistence_location ./",
        "persistence_file mosquitto.db",
        "log_dest stderr",
        "log_type error",
        "log_type warning",
        "log_type notice",
        "log_timestamp_format %Y-%m-%dT%H:%M:%S",
    ]
    # Started by root it would become another user, who cannot write to this folder.
    return [*lines, "user root"] if os.geteuid() == 0 else lines
