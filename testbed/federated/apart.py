"""What sets a participant's process apart: the environment it gets, and its user."""

from __future__ import annotations

import os

INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables of the environment that participants get."""
ENVIRONMENT = {
    "GRPC_VERBOSITY": "NONE",  # what matters is said in a sentence of ours
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # gRPC's newer engine hands a message through two more threads: a third of the rate.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
"""What it holds besides."""
FIRST_USER, USERS_PER_RUN = 2**30, 2**9


def participants_environment() -> dict[str, str]:
    """Return it: a participant is not told what else the experimenter's environment holds."""
    return {**{key: os.environ[key] for key in INHERITED if key in os.environ}, **ENVIRONMENT}


def users_of(run: str, names: list[str]) -> dict[str, int]:
    """Give each participant a user of its own, where the launcher may: nobody else has these."""
    if os.geteuid() != 0:
        return {}
    first = FIRST_USER + int(run[:5], 16) * USERS_PER_RUN
    return {name: first + number for number, name in enumerate(names)}
