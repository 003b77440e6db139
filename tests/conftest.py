"""Fixtures that several test files share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import ROOT, SCENARIOS

REAL_DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real topologies and traces beside the checkout."""
    if not REAL_DATA.is_dir():
        pytest.skip(f"the real topologies and traces are not at {REAL_DATA}")
    return REAL_DATA


@pytest.fixture
def write_scenario(tmp_path: Path) -> Callable[..., Path]:
    """Write a changed copy of a shipped scenario."""

    def write(*changes: tuple[str, str], scenario: str = "tiny") -> Path:
        text = (SCENARIOS / f"{scenario}.toml").read_text()
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new, 1)
        path = tmp_path / "scenario.toml"
        path.write_text(text)
        return path

    return write
