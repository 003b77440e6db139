"""What separates a participant from the experimenter: its environment variables and its user."""

from __future__ import annotations

import os
import subprocess
import sys

INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables that participants inherit; whatever else the experimenter's environment holds stays."""
ENVIRONMENT = {
    "GRPC_VERBOSITY": "NONE",  # errors that matter are reported in one sentence
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # gRPC's newer engine passes a message through two more threads: a third of the rate.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Variables that are set for every participant."""
END_PROCESSES = """
import os, signal, sys
user = int(sys.argv[1])
os.setgroups([])
os.setgid(user)
os.setuid(user)
os.kill(-1, signal.SIGKILL)
"""
"""Becomes a user and kills all other processes of that user, in one step that none can outrun."""
FIRST_USER, USERS_PER_RUN = 2**30, 2**9
"""User ids far above those of real accounts, a few hundred for each run."""


def participants_environment() -> dict[str, str]:
    """Return the environment of a participant's process."""
    return {**{key: os.environ[key] for key in INHERITED if key in os.environ}, **ENVIRONMENT}


def users_of(run: str, names: list[str]) -> dict[str, int]:
    """Return a user id for each participant of a run; none unless the launcher is root."""
    if os.geteuid() != 0:
        return {}
    first = FIRST_USER + int(run[:5], 16) * USERS_PER_RUN
    return {name: first + number for number, name in enumerate(names)}


def end_processes_of(user: int) -> None:
    """Kill every process of a user: what a policy has started outside of namespaces."""
    subprocess.run(  # noqa: S603 (a constant program)
        [sys.executable, "-I", "-S", "-c", END_PROCESSES, str(user)],
        check=False,
        stderr=subprocess.DEVNULL,
    )
