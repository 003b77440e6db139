"""The scheduler of a cluster and the workers of a host: Dask's own, confined to TLS identities."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from socket import create_connection, gaierror
from tempfile import TemporaryDirectory

from cryptography import x509

from fogveil.broker import parent_death
from fogveil.core.errors import InfrastructureError, InputError
from fogveil.protocol.credentials import Credentials
from fogveil.testbed.workers.files import PREFIX
from fogveil.testbed.workers.folder import (
    SCHEDULER,
    WORKER,
    credentials_of,
    make_folder,
    read_address,
    write_address,
)
from fogveil.testbed.workers.preload import PRELOAD
from fogveil.testbed.workers.work import Say

ANSWER_SECONDS, RETRY_SECONDS = 10, 2
LARGEST_PORT = 65535
LOOPBACK = "127.0.0.1"
"""Where Dask's pages are shown: they ask nobody who they are."""


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT.

    >>> parse_address("10.0.0.7:8786", "--listen")
    ('10.0.0.7', 8786)
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= LARGEST_PORT:
        raise InputError(f"{option} {text}: expected HOST:PORT, such as 10.0.0.7:8786")
    return host, int(port)


def prepare_folder(folder: Path, address: str) -> None:
    """Make the credentials of a cluster, unless the folder has them, and note its address."""
    if not folder.is_dir():
        make_folder(folder)
    certificate = credentials_of(folder, SCHEDULER).certificate
    expiry = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    if expiry < datetime.now(UTC):
        raise InputError(
            f"{folder}: its certificates have expired on {expiry:%Y-%m-%d}; remove the folder, and "
            "copy the new one to all hosts"
        )
    write_address(folder, address)


def run_scheduler(folder: Path, address: str, dashboard_port: int) -> None:
    """Run the scheduler until it is stopped."""
    from distributed.cli.dask_scheduler import main

    host, port = parse_address(address, "--listen")
    words = ["--protocol", "tls", "--host", host, "--port", str(port)]
    words += ["--dashboard-address", f"{LOOPBACK}:{dashboard_port}"]
    words += _identity(credentials_of(folder, SCHEDULER))
    with _one_sentence(f"the scheduler cannot listen at {address}, or show its pages"):
        main(words, standalone_mode=False)


def run_workers(folder: Path, count: int, address: str | None, say: Say) -> None:
    """Run worker processes of one thread each until they are stopped.

    They join again whenever the scheduler, or the way to it, was lost and is back.
    """
    credentials = credentials_of(folder, WORKER)
    address = address or read_address(folder, WORKER)
    check_scheduler(address, credentials)
    while True:
        with TemporaryDirectory(prefix=PREFIX) as name:
            words = [f"tls://{address}", "--nworkers", str(count), "--nthreads", "1"]
            words += ["--memory-limit", "0", "--local-directory", name, "--preload", PRELOAD]
            words += ["--dashboard-address", f"{LOOPBACK}:0", "--death-timeout", "60"]
            _run_until_lost([*words, *_identity(credentials)], name)
        say(f"the scheduler at {address} is lost; joining it again once it answers")
        while not _answers(address, credentials):
            time.sleep(RETRY_SECONDS)


def _run_until_lost(words: list[str], temporary: str) -> None:
    """Run Dask's worker program until it ends by itself."""
    until_death = (sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), "")
    program = (sys.executable, "-m", "distributed.cli.dask_worker")
    # Whatever a computation leaves in the folder of temporary files goes with it.
    with subprocess.Popen(  # noqa: S603 (Dask's own program)
        [*until_death, *program, *words], env={**os.environ, "TMPDIR": temporary}
    ) as process:
        try:
            process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _answers(address: str, credentials: Credentials) -> bool:
    try:
        check_scheduler(address, credentials)
    except InfrastructureError:
        return False
    return True


def check_scheduler(address: str, credentials: Credentials) -> None:
    """Refuse an address where nobody answers, or somebody whose authority is another."""
    host, port = parse_address(address, "the scheduler's address")
    context = ssl.create_default_context(cafile=str(credentials.authority))
    context.check_hostname = False  # as Dask: the authority is this cluster's alone
    context.load_cert_chain(credentials.certificate, credentials.key)
    try:
        with (
            closing(create_connection((host, port), ANSWER_SECONDS)) as connection,
            closing(context.wrap_socket(connection)),
        ):
            return
    except ssl.SSLError as error:
        raise InfrastructureError(
            f"the scheduler at {address} is not that of {credentials.folder}: {error.reason}"
        ) from error
    except (OSError, gaierror) as error:
        raise InfrastructureError(
            f"no scheduler answers at {address}: {error.strerror or error}; start it with `fogveil "
            "workers scheduler`"
        ) from error


@contextmanager
def _one_sentence(failure: str) -> Iterator[None]:
    """Say what failed, with the cause that Dask gives, in place of its traceback."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        cause: BaseException = error
        while cause.__cause__:
            cause = cause.__cause__
        raise InfrastructureError(f"{failure}: {str(cause) or type(cause).__name__}") from error


def _identity(credentials: Credentials) -> list[str]:
    files = {"ca-file": credentials.authority, "cert": credentials.certificate}
    files["key"] = credentials.key
    return [
        word for name, path in files.items() for word in (f"--tls-{name}", str(path.absolute()))
    ]
