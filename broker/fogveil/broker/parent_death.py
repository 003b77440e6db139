"""Run a program that is killed when its parent ends: parent_death.py PARENT USER PROGRAM ARGUMENTS.

Linux sends a process a signal of its choice when the thread that started it ends, even by kill -9,
and the choice survives exec. It is made here, in a separate process, because code between fork and
exec (subprocess's `preexec_fn`) is not safe where the launcher has threads. Other systems have no
such signal: there the program outlives a launcher that is killed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
OPEN_FILES = 2**16


def main(parent: int, user: str, command: list[str]) -> None:
    """Become `user` (a number, or empty), ask for the signal, and execute the command."""
    # As `raise_file_limit` does, which cannot be imported here.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if user:  # first, because a change of user clears the request for the signal
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the request
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - the callers pass absolute paths; no shell


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
