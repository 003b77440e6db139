"""Become another program that dies with its parent: python tether.py PARENT USER PROGRAM ARGUMENTS.

Linux kills a process that asked for it as soon as the thread that started it ends, by kill -9 as
well, and a program that takes the place of another keeps the wish. Asked here, in a process of its
own, it needs no code between fork and exec, which is not safe where the launcher has threads.
Elsewhere there is no such wish, and the program outlives a launcher that is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, user: str, program: list[str]) -> None:
    """Ask for the signal, make sure that it did not come too late, and become the program."""
    if user:  # first: who becomes another user gives up the wish
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(program[0], program)  # noqa: S606 - a path we looked up, and no shell


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
