"""A challenge to the audit: somebody's own breakage, applied to a copy of the product.

The participants, the built-in broker and the process that inspects a policy run from the copy. The
launcher, the reference, the evaluator and the audit run from the installation: the auditor is never
the accused.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fogveil.core.errors import InputError
from fogveil.protocol.product_copy import module_command
from fogveil.testbed.launch.process_environment import participants_environment, users_of
from fogveil.testbed.privacy.audit.findings import Finding, Verdict
from fogveil.testbed.source_tree import source_files

COPIED = ("core", "protocol", "v1", "broker", "provider_node", "agent", "sources", "clock")
"""The packages that participants run."""
WITHIN = 60.0
"""Seconds in which a challenge must have changed the copy."""
SHOWN = 300
"""Characters shown of what a challenge says."""


@dataclass(frozen=True)
class Challenge:
    """A copy of the product with somebody's breakage in it."""

    file: Path
    product: Path
    """The folder to import it from."""
    changed: tuple[str, ...]
    """The files that differ from the product's."""


@contextmanager
def apply_challenge(file: Path) -> Iterator[Challenge]:
    """Copy the participants' packages, let the file change the copy, and remove it in the end."""
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"challenge {file}: cannot be read: {reason}") from error
    product = Path(tempfile.mkdtemp(prefix="fogveil-challenge-"))
    try:
        copy_product(product)
        _run_sabotage(file, source, product)
        _seal(file, product)
        changed = changed_files(product)
        if not changed:
            raise InputError(f"challenge {file}: it changes nothing of the product")
        yield Challenge(file, product, changed)
    finally:
        shutil.rmtree(product, ignore_errors=True)


def copy_product(folder: Path) -> None:
    """Copy the participants' packages into a folder from which they can be imported."""
    for name, path in source_files(COPIED).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)


def caught_by(findings: Iterable[Finding]) -> list[str]:
    """Return the names of the checks that found a broken promise, each once."""
    failed = (finding for finding in findings if finding.verdict is Verdict.FAIL)
    return list(dict.fromkeys(finding.promise.partition(":")[0] for finding in failed))


def _run_sabotage(file: Path, source: str, product: Path) -> None:
    """Run the challenge's code in a process without secrets, as a user who owns the copy alone."""
    user = users_of(secrets.token_hex(16), ["challenge"]).get("challenge")
    if user is not None:
        for path in (product, *product.rglob("*")):
            os.chown(path, user, user)
    question = {"file": str(file), "source": source, "product": str(product), "user": user}
    process = subprocess.Popen(  # noqa: S603 (our own module)
        module_command("fogveil.testbed.privacy.audit.sabotage_process"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=participants_environment(),
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(json.dumps(question), WITHIN)
    except subprocess.TimeoutExpired:
        raise InputError(f"challenge {file}: it was not done within {WITHIN:g} s") from None
    finally:
        with suppress(ProcessLookupError):  # and what it has started
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.communicate()
    try:
        refused = json.loads(output)["refused"]
    except (ValueError, TypeError, KeyError):
        refused = f"its process ended with code {process.returncode}"
    if refused:
        sentence = "".join(c if c.isprintable() else " " for c in str(refused))[:SHOWN]
        raise InputError(f"challenge {file}: {sentence}")


def _seal(file: Path, product: Path) -> None:
    """Make the copy readable by everybody and writable by the auditor alone, whatever is in it."""
    waiting = [product]
    while waiting:
        path = waiting.pop()
        status = path.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        # A link could lead to a file of the auditor's, and would be opened to everybody below.
        if not is_folder and not (stat.S_ISREG(status.st_mode) and status.st_nlink == 1):
            name = path.relative_to(product)
            raise InputError(f"challenge {file}: {name} is neither a folder nor a plain file")
        if os.geteuid() == 0:
            os.chown(path, 0, 0, follow_symlinks=False)
        path.chmod(0o755 if is_folder else 0o644)
        if is_folder:
            waiting += path.iterdir()


def changed_files(product: Path) -> tuple[str, ...]:
    """Return the files that were changed, added or removed in a copy."""
    original = source_files(COPIED)
    left = {
        path.relative_to(product).as_posix(): path
        for path in product.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    same = (
        name
        for name in original.keys() & left.keys()
        if original[name].read_bytes() == left[name].read_bytes()
    )
    return tuple(sorted((original.keys() | left.keys()).difference(same)))
