"""mosquitto, set up for one run: on loopback, on a port and in a folder of its own.

With identities it speaks TLS, takes its clients' names from their certificates, and its plugin
`dynamic security` holds them to the table of `broker.access`. (Its `acl_file` would not do: it
grants every subscription, even to `#`, and leaves out what may not be delivered.)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from broker import tether
from broker.access import Access, Guard, write_private
from broker.address import Address
from broker.packets import LIMIT, PACKET_LIMIT
from fogveil.errors import InputError

CONFIGURATION = "mosquitto.conf"
RULES = "dynamic-security.json"
PLUGIN = "mosquitto_dynamic_security.so"
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


def find_plugin(executable: str) -> Path | None:
    """Return the path of the plugin that belongs to an executable, if it is installed."""
    prefix = Path(executable).resolve().parent.parent
    for places in ("lib", "lib64", "lib/*", "lib/*/*"):
        for place in sorted(prefix.glob(places)):
            if (place / PLUGIN).is_file():
                return place / PLUGIN
    return None


def required_plugin(executable: str) -> Path:
    """Return the path of the plugin, or say what to do without."""
    found = find_plugin(executable)
    if found is None:
        raise InputError(
            f"broker: {executable} comes without {PLUGIN}, which holds participants to what they "
            "may do: install mosquitto 2 in full, or choose the broker `builtin`"
        )
    return found


def launch(
    executable: str,
    folder: Path,
    address: Address,
    log: int,
    guard: Guard | None = None,
    user: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start mosquitto at an address; what it has to say goes to the descriptor `log`."""
    plugin = required_plugin(executable) if guard else None
    write_files(folder, address, guard, plugin)
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user)
    return subprocess.Popen(  # noqa: S603 - no shell, and nothing a stranger chose
        [
            *(sys.executable, "-I", "-S", tether.__file__, str(os.getpid())),
            "" if user is None else str(user),
            *(executable, "-c", CONFIGURATION),
        ],
        cwd=folder,  # so its files have plain names in the configuration
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        umask=0o077,
        start_new_session=True,  # Ctrl-C in a terminal is for the launcher alone
    )


def write_files(
    folder: Path, address: Address, guard: Guard | None = None, plugin: Path | None = None
) -> None:
    """Write what mosquitto needs for a run; `plugin` is where it finds dynamic security."""
    access = ["allow_anonymous true"]  # where participants carry no identities
    if guard:
        assert plugin is not None
        access = _guarded(guard, plugin, folder)
        write_private(folder / RULES, json.dumps(rules(guard.access), indent=1))
    write_private(folder / CONFIGURATION, configuration(address, access))


def configuration(address: Address, access: list[str]) -> str:
    """Return the text of the configuration file."""
    sections = (_listener(address), access, _no_limits(), _files())
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def rules(access: Access) -> dict[str, Any]:
    """Return the table as the plugin reads it: a client and a role of its own for each identity."""
    names = {identity.common_name: given for identity, given in access.table.items()}
    return {
        "defaultACLAccess": {
            "publishClientSend": False,
            "publishClientReceive": False,
            "subscribe": False,
            "unsubscribe": True,  # `Relay.drained` asks that way
        },
        "clients": [{"username": name, "roles": [{"rolename": name}]} for name in names],
        "groups": [],
        "roles": [
            {
                "rolename": name,
                "acls": [
                    *(_allow("publishClientSend", topic) for topic in sorted(given.publish)),
                    *(_allow("subscribeLiteral", filter_) for filter_ in sorted(given.subscribe)),
                    *(_allow("publishClientReceive", each) for each in sorted(given.subscribe)),
                ],
            }
            for name, given in names.items()
        ],
    }


def _allow(kind: str, topic: str) -> dict[str, Any]:
    return {"acltype": kind, "topic": topic, "priority": 0, "allow": True}


def _listener(address: Address) -> list[str]:
    return [
        "# Written for one run; the next run writes it anew.",
        f"listener {address.port} {address.host}",
        "set_tcp_nodelay true",
    ]


def _guarded(guard: Guard, plugin: Path, folder: Path) -> list[str]:
    """Know everybody by a certificate of the run, and by nothing else."""
    credentials = guard.credentials
    return [
        f"cafile {_from(folder, credentials.authority)}",
        f"certfile {_from(folder, credentials.certificate)}",
        f"keyfile {_from(folder, credentials.key)}",
        "tls_version tlsv1.3",  # or later
        "require_certificate true",
        "use_identity_as_username true",
        "use_username_as_clientid true",
        "allow_anonymous false",
        f"plugin {plugin}",
        f"plugin_opt_config_file {RULES}",
    ]


def _from(folder: Path, path: Path) -> Path:
    """Name a file as it is found from the folder: the way to that may be closed to the broker."""
    whole, home = path.resolve(), folder.resolve()
    return whole.relative_to(home) if whole.is_relative_to(home) else whole


def _no_limits() -> list[str]:
    """Let nothing be dropped but what is larger than clients take: losses would stall a run."""
    return [
        # Not 0, which is for "no limit": where a message is refused, Debian's mosquitto takes it at
        # its word, finds the limit exceeded, and closes the connection.
        f"max_queued_messages {2**31 - 1}",
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
    # Started by root it would become another user than ours, who cannot write to this folder.
    return [*lines, "user root"] if os.geteuid() == 0 else lines
