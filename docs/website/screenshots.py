"""Pictures of the page of a run for docs/dashboard.md: `make docs-screenshots`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

OUT = Path(__file__).parents[1] / "images" / "dashboard"
FOGVEIL = [sys.executable, "-m", "fogveil.testbed.cli"]
SHOTS = {
    "load": (("jsq",), "light", 0.6),
    "pair": (("jsq", "veil"), "dark", 0.6),
    "end": (("veil",), "light", 1.0),
}
"""By name: policies, colours, and at which share of the run."""
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def main() -> None:
    """Run, replay and photograph."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = shutil.which("chromium")
    if path is None:
        sys.exit("chromium is missing: install it (apt install chromium)")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        for policy in ("jsq", "veil"):
            words = ["run", "stress", "--policy", policy, "--rate", "100", "--horizon", "2000"]
            words += ["--seed", "1", "--federated", "--record", "--out", f"{folder}/{policy}"]
            subprocess.run([*FOGVEIL, *words], check=True, capture_output=True)  # noqa: S603
        for name, (policies, colours, share) in SHOTS.items():
            with _page([f"{folder}/{policy}" for policy in policies]) as link:
                _shoot(browser, link, colours, share, OUT / f"{name}.png")
            print(f"written: {OUT / name}.png")
        browser.close()


@contextmanager
def _page(folders: list[str]) -> Iterator[str]:
    command = subprocess.Popen(  # noqa: S603
        [*FOGVEIL, "dashboard", *folders], stdout=subprocess.PIPE, text=True
    )
    assert command.stdout
    found = re.search(r"http://\S+", command.stdout.readline())
    assert found
    yield found.group(0)
    command.terminate()
    command.wait()


def _shoot(browser: Browser, link: str, colours: str, share: float, path: Path) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 950})
    page.emulate_media(color_scheme="dark" if colours == "dark" else "light")
    page.goto(link)
    page.wait_for_selector(".messages li")
    end = page.evaluate("Number(document.getElementById('time').max)")
    # A stretch is played, so that the agent has inferred something and the curves have points.
    page.evaluate(f"wish({{time: {end * (share - 0.3)}, speed: {end * 0.3 / 10}, held: false}})")
    time.sleep(12)
    page.evaluate(f"wish({{time: {end * share}, held: true}})")
    time.sleep(2)
    page.screenshot(path=path)
    page.close()


if __name__ == "__main__":
    main()
