"""Loaded by every worker process before it registers: it declares the code that it will execute.

The scheduler gives a computation to workers that declare its code, and to no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fogveil.testbed.workers.code import installed_code

if TYPE_CHECKING:
    from distributed import Worker

PRELOAD = __name__
"""What Dask is told to load."""
RESOURCE = "fogveil-code-"


def resource_of(code: str) -> str:
    """Return the name under which a worker declares its code."""
    return f"{RESOURCE}{code}"


def dask_setup(worker: Worker) -> None:
    """Declare the code; Dask calls this."""
    name = resource_of(installed_code())
    for resources in (worker.state.total_resources, worker.state.available_resources):
        resources[name] = float(worker.state.nthreads)
