"""mosquitto, configured for one run: on loopback, with a port and a folder for that run alone.

With identities it speaks TLS, takes its clients' names from their certificates, and enforces the
table of `fogveil.broker.acl` by its plugin `dynamic security`. (Its option `acl_file` is not
enough: it grants every subscription, even to `#`, and only filters what is delivered.)
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from fogveil.broker import parent_death
from fogveil.broker.acl import AccessList, BrokerSecurity
from fogveil.broker.address import Address
from fogveil.broker.mqtt_packets import PACKET_LIMIT, PAYLOAD_LIMIT
from fogveil.core.errors import InputError
from fogveil.core.files import give_to, write_private

CONFIGURATION = "mosquitto.conf"
RULES = "dynamic-security.json"
PLUGIN = "mosquitto_dynamic_security.so"
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
"""With the folders that Debian installs it in, which are in an administrator's PATH only."""


def find() -> str | None:
    """Return the path of the executable, if it is installed."""
    return shutil.which("mosquitto", path=SEARCH_PATH)


def require() -> str:
    """Return the path of the executable; InputError where it is not installed."""
    path = find()
    if path is None:
        raise InputError(
            "broker: mosquitto is not installed: get it with `apt install mosquitto`, "
            "or choose the broker `builtin`"
        )
    return path


def find_plugin(executable: str) -> Path | None:
    """Return the path of the plugin of an executable, if it is installed."""
    prefix = Path(executable).resolve().parent.parent
    for pattern in ("lib", "lib64", "lib/*", "lib/*/*"):
        for folder in sorted(prefix.glob(pattern)):
            if (folder / PLUGIN).is_file():
                return folder / PLUGIN
    return None


def require_plugin(executable: str) -> Path:
    """Return the path of the plugin of an executable; InputError where it is not installed."""
    path = find_plugin(executable)
    if path is None:
        raise InputError(
            f"broker: {executable} comes without {PLUGIN}, which enforces the access control list: "
            "install mosquitto 2 in full, or choose the broker `builtin`"
        )
    return path


def launch(
    executable: str,
    folder: Path,
    address: Address,
    log: int,
    security: BrokerSecurity | None = None,
    user: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start mosquitto at an address, with its output going to the file descriptor `log`."""
    plugin = require_plugin(executable) if security else None
    write_files(folder, address, security, plugin)
    give_to(user, folder)
    return subprocess.Popen(  # noqa: S603 - no shell, and no argument from outside
        [
            *(sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid())),
            "" if user is None else str(user),
            *(executable, "-c", CONFIGURATION),
        ],
        cwd=folder,  # so that the configuration can name files without their folder
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        umask=0o077,
        start_new_session=True,  # Ctrl-C in a terminal is for the launcher alone
    )


def write_files(
    folder: Path,
    address: Address,
    security: BrokerSecurity | None = None,
    plugin: Path | None = None,
) -> None:
    """Write the configuration of a run's mosquitto; with security it needs the plugin's path."""
    access = ["allow_anonymous true"]
    if security:
        assert plugin is not None
        access = _security_options(security, plugin, folder)
        write_private(folder / RULES, json.dumps(rules(security.access), indent=1))
    write_private(folder / CONFIGURATION, configuration(address, access))


def configuration(address: Address, access: list[str]) -> str:
    """Return the text of the configuration file."""
    sections = (_listener_options(address), access, _limit_options(), _file_options())
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def rules(access: AccessList) -> dict[str, Any]:
    """Return the access list in the plugin's format: a client and a role for each identity."""
    by_name = {identity.common_name: rights for identity, rights in access.table.items()}
    return {
        "defaultACLAccess": {
            "publishClientSend": False,
            "publishClientReceive": False,
            "subscribe": False,
            "unsubscribe": True,  # `BrokerClient` uses it to ask whether the broker is alive
        },
        "clients": [{"username": name, "roles": [{"rolename": name}]} for name in by_name],
        "groups": [],
        "roles": [
            {
                "rolename": name,
                "acls": [
                    *(_allow("publishClientSend", topic) for topic in sorted(rights.publish)),
                    *(_allow("subscribeLiteral", each) for each in sorted(rights.subscribe)),
                    *(_allow("publishClientReceive", each) for each in sorted(rights.subscribe)),
                ],
            }
            for name, rights in by_name.items()
        ],
    }


def _allow(kind: str, topic: str) -> dict[str, Any]:
    return {"acltype": kind, "topic": topic, "priority": 0, "allow": True}


def _listener_options(address: Address) -> list[str]:
    remark = "# Written for one run; the next run overwrites it."
    if address.socket:
        return [remark, f"listener 0 {address.socket}"]
    return [remark, f"listener {address.port} {address.host}", "set_tcp_nodelay true"]


def _security_options(security: BrokerSecurity, plugin: Path, folder: Path) -> list[str]:
    """Identify every client by a certificate of the run, and by nothing else."""
    credentials = security.credentials
    return [
        f"cafile {_relative(credentials.authority, folder)}",
        f"certfile {_relative(credentials.certificate, folder)}",
        f"keyfile {_relative(credentials.key, folder)}",
        "tls_version tlsv1.3",  # or later
        "require_certificate true",
        "use_identity_as_username true",
        "use_username_as_clientid true",
        "allow_anonymous false",
        f"plugin {plugin}",
        f"plugin_opt_config_file {RULES}",
    ]


def _relative(path: Path, folder: Path) -> Path:
    """Return a path relative to the folder: the broker's user may not be able to enter the rest."""
    absolute, root = path.resolve(), folder.resolve()
    return absolute.relative_to(root) if absolute.is_relative_to(root) else absolute


MEMORY_LIMIT = 256 * 2**20
"""Bytes that wait for receivers, in all. The clock lets nobody run ahead by more than some hundred
decisions, so an honest run has kilobytes there, and some megabytes where a long queue drains."""
CUT_OFF = re.compile(r"Client (\S+) disconnected due to out of memory")
"""In the log: whose message no memory was left for."""


def _limit_options() -> list[str]:
    """Drop nothing but messages larger than clients accept: a lost message would stall a run.

    (A limit per queue, in messages, would drop in silence, and not those of the sender to blame.)
    At the limit of memory the connection of the client that sends is closed, and the log names it.
    """
    return [
        f"memory_limit {MEMORY_LIMIT}",
        # Not 0, which means "no limit": where a message is refused, Debian's mosquitto takes it
        # literally, finds the limit exceeded, and closes the connection.
        f"max_queued_messages {2**31 - 1}",
        "max_queued_bytes 0",
        "max_inflight_messages 0",
        "max_inflight_bytes 0",
        f"message_size_limit {PAYLOAD_LIMIT}",
        f"max_packet_size {PACKET_LIMIT}",
        "sys_interval 0",
    ]


def _file_options() -> list[str]:
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
    # Started by root it would otherwise switch to a user who cannot write to the folder.
    return [*lines, "user root"] if os.geteuid() == 0 else lines
