"""Credentials that every server must refuse."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import Identity
from fogveil.testbed.launch.certificates import Mint


def foreign_credentials(identity: Identity, folder: Path, mint: Mint) -> Credentials:
    """Issue credentials by another authority; their holder trusts ours, so that it can connect."""
    foreign = Mint(identity.run).issue(identity, folder)
    trusting = mint.issue(replace(identity, run=mint.run), folder / "trusted")
    shutil.copy(trusting.authority, foreign.authority)
    return foreign


def expired_credentials(identity: Identity, folder: Path, mint: Mint) -> Credentials:
    """Issue credentials that expired yesterday."""
    now = datetime.now(UTC)
    return mint.issue(identity, folder, (now - timedelta(days=3), now - timedelta(days=1)))
