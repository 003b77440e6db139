"""The folder of a cluster: who may connect to its scheduler, and where that is.

It has a folder for each of the three roles, with a key and certificates of one authority, whose own
key is in no file: nobody can be added later, and nobody else can connect.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from fogveil.core.errors import InputError
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import Identity
from fogveil.testbed.launch.certificates import Mint
from fogveil.testbed.records.output import reporting_write_errors, write_json

if TYPE_CHECKING:
    from distributed import Security

SCHEDULER, WORKER, DRIVER = "scheduler", "worker", "driver"
ROLES = (SCHEDULER, WORKER, DRIVER)
"""They are no participants of a testbed: no run knows them."""
DEFAULT_FOLDER = Path("runs/workers")
DESCRIPTION = "scheduler.json"


def make_folder(folder: Path) -> None:
    """Write new credentials for all roles."""
    mint = Mint(secrets.token_hex(8))
    with reporting_write_errors(folder):
        for role in ROLES:
            mint.issue(Identity(mint.run, role, role), folder / role)


def write_address(folder: Path, address: str) -> None:
    """Note in the folders of all roles where the scheduler listens."""
    for role in ROLES:
        write_json(folder / role / DESCRIPTION, {"address": address})


def read_address(folder: Path, role: str) -> str:
    """Return where the scheduler of a role's folder listens."""
    path = folder_of(folder, role) / DESCRIPTION
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["address"])
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; `fogveil workers scheduler` writes it"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not the description of a scheduler") from error


def folder_of(folder: Path, role: str) -> Path:
    """Return the folder of a role: a folder of all roles has one, and one of a role is its own."""
    return folder / role if (folder / role).is_dir() else folder


def credentials_of(folder: Path, role: str) -> Credentials:
    """Return the credentials of a role, or refuse a folder that has none."""
    credentials = Credentials(folder_of(folder, role))
    for path in (credentials.key, credentials.certificate, credentials.authority):
        if not path.is_file():
            raise InputError(
                f"{path}: does not exist; expected a folder of `fogveil workers scheduler`, or the "
                f"copy of its folder {role}"
            )
    return credentials


def security_of(credentials: Credentials, *roles: str) -> Security:
    """Return what Dask needs to prove an identity, and to ask all others for theirs."""
    from distributed import Security

    files: dict[str, str] = {}
    for role in roles:
        files[f"tls_{role}_key"] = str(credentials.key.absolute())
        files[f"tls_{role}_cert"] = str(credentials.certificate.absolute())
    authority = str(credentials.authority.absolute())
    return Security(tls_ca_file=authority, require_encryption=True, **files)
