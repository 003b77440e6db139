"""Starting processes in namespaces of their own, where the system allows it.

`unshare` of util-linux creates them: a process then has a process table, mounts, a network, shared
memory and a host name of its own. Root may do that at once; everybody else within a user namespace,
unless the system forbids them. `fogveil.protocol.enclosure` does the rest from inside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from fogveil.protocol.enclosure import GO_ON, Enclosure

Namespaces = Literal["root", "user", "none"]
"""Whether processes are enclosed: each as a user of its own, all as one user, or not at all."""
ALWAYS = ("--fork", "--kill-child", "--pid", "--mount", "--ipc", "--uts")
AS_USER = ("--user", "--map-current-user", "--keep-caps")
PROBE_WITHIN = 120.0
FORKS_WITHIN = 60.0
UNPRIVILEGED = 2**30
"""A user id without any account, for trying."""


def enclosing_command(namespaces: Namespaces, *, network: bool) -> list[str]:
    """Return the command that encloses the module or program whose arguments follow it.

    `network` gives the process a network of its own, on which there is nobody.
    """
    options = [*(AS_USER if namespaces == "user" else ()), *ALWAYS, *(["--net"] if network else [])]
    # The launcher's death kills `unshare`, and that kills everything in the namespaces.
    until_death = (_find("setpriv"), "--pdeathsig", "KILL")
    python = (sys.executable, "-P", "-m", "fogveil.protocol.enclosure")
    return [*until_death, _find("unshare"), *options, *python]


def _find(program: str) -> str:
    return shutil.which(program) or program


@cache
def available_namespaces() -> Namespaces:
    """Return which namespaces processes can be started in, found out by trying."""
    namespaces: Namespaces = "root" if os.geteuid() == 0 else "user"
    enclosure = Enclosure(folder="", user=UNPRIVILEGED if namespaces == "root" else None)
    try:
        done = subprocess.run(  # noqa: S603 (our own module)
            [*enclosing_command(namespaces, network=True), shutil.which("true") or "/bin/true"],
            input=enclosure.encode(),
            capture_output=True,
            timeout=PROBE_WITHIN,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    return namespaces if done.returncode == 0 else "none"


class EnclosedProcess(subprocess.Popen[bytes]):
    """A process in namespaces of its own: its exit code is that of its parent, `unshare`."""

    def __init__(
        self,
        namespaces: Namespaces,
        enclosure: Enclosure,
        arguments: list[str],
        *,
        network: bool,
        **options: Any,
    ) -> None:
        self._inner: int | None = None
        command = [*enclosing_command(namespaces, network=network), *arguments]
        super().__init__(command, stdin=subprocess.PIPE, **options)
        assert self.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and its exit code says so
            self.stdin.write(enclosure.encode())
            self.stdin.flush()

    @property
    def inner_pid(self) -> int:
        """The process id of the process itself, as this machine knows it."""
        deadline = time.monotonic() + FORKS_WITHIN
        while self._inner is None and self.poll() is None and time.monotonic() < deadline:
            with suppress(OSError):
                path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
                if children := path.read_text(encoding="ascii").split():
                    self._inner = int(children[0])
                    break
            time.sleep(0.001)
        return self.pid if self._inner is None else self._inner

    def let_go(self) -> None:
        """Let a process go on that is held."""
        assert self.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and its exit code says so
            self.stdin.write(GO_ON)
            self.stdin.flush()

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process itself."""
        inner = self.inner_pid
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(inner, sig)


def pid_of(process: subprocess.Popen[bytes]) -> int:
    """Return the id of a process, enclosed or not."""
    return process.inner_pid if isinstance(process, EnclosedProcess) else process.pid
