"""What an open page costs a run: rates with a reading, a slow and no browser, on one testbed.

One testbed runs all the time and the pages take turns: other load slows all alike.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from urllib.request import urlopen

from benchmarks.federated import make_world
from benchmarks.federated_testbed import PausableTestbed
from fogveil.testbed.dashboard.run_source import announce
from fogveil.testbed.launch.participant_config import Plan

FOGS = 10
TARGET = 0.95
"""Share of the rate without a page."""


class Reader:
    """A client of both streams of a page."""

    def __init__(self, folder: str, *, slow: bool) -> None:
        code = "from fogveil.testbed.dashboard.process import main; main()"
        self._server = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps({"folders": [folder], "refused_users": []}) + "\n")
        self._server.stdin.flush()
        with urlopen(json.loads(self._server.stdout.readline())["link"]) as answer:  # noqa: S310
            self._page = answer.url
        self._over = False
        for name in ("agent", "private"):
            threading.Thread(target=self._read, args=(name, slow), daemon=True).start()

    def _read(self, name: str, slow: bool) -> None:  # noqa: FBT001
        with urlopen(f"{self._page}events/{name}") as stream:  # noqa: S310
            while not self._over and stream.read(1 if slow else 65536):
                time.sleep(1.0 if slow else 0)

    def close(self) -> None:
        """End the page."""
        self._over = True
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait()


@contextmanager
def open_page(folder: str, kind: str) -> Iterator[None]:
    """Keep a page open, or none."""
    reader = None if kind == "no page" else Reader(folder, slow=kind == "a browser that hangs")
    try:
        yield
    finally:
        if reader:
            reader.close()


def compare(title: str, policy: str, window: int, turns: int) -> None:
    """Print the rates."""
    world = make_world(FOGS)
    plan = Plan(policies=(policy,), window=window, broker="builtin", record=True)
    kinds = ("no page", "a page that is read", "a browser that hangs")
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    with PausableTestbed(world, plan) as testbed:
        announce(testbed.folder, world.scenario, policy)
        for _ in range(turns):
            for kind in kinds:
                with open_page(str(testbed.folder), kind):
                    rates[kind].append(testbed.measure(1.5).rate)
                    testbed.resume()
    print(f"\n{title}")
    for kind, measured in rates.items():
        share = median(a / b for a, b in zip(measured, rates["no page"], strict=True))
        mark = "" if kind == "no page" else (" met" if share >= TARGET else " MISSED")
        print(f"  {share:5.2f}  {kind}: {median(measured):,.0f} decisions/s{mark}")


def main() -> None:
    """Measure lockstep and pipelined."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a third of the turns")
    turns = 3 if parser.parse_args().quick else 9
    print(f"what a page costs, {FOGS} Fog providers (target: {TARGET:g} of the rate without)")
    compare("lockstep, jsq at level count", "jsq", 1, turns)
    compare("pipelined, round robin, 64 decisions per window", "round-robin", 64, turns)


if __name__ == "__main__":
    main()
