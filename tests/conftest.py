"""Fixtures that several test files share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import ROOT, SCENARIOS

# A busy machine is slow, which is no fault of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

REAL_DATA = Path(os.environ.get("FOGVEIL_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real topologies and traces, which are not part of the repository."""
    if "FOGVEIL_DATA" in os.environ:
        assert REAL_DATA.is_dir(), f"FOGVEIL_DATA: {REAL_DATA} is not a folder"
    if not REAL_DATA.is_dir():
        pytest.skip(f"no real topologies and traces: FOGVEIL_DATA is not set, {REAL_DATA} missing")
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
