"""What a sources process is told: when its clusters emit what, and who sends results."""

from __future__ import annotations

from dataclasses import dataclass

from fogveil.protocol.settings import Settings
from fogveil.sources.core import SourcesConfig


@dataclass(frozen=True, kw_only=True)
class SourcesSettings(Settings):
    """The configuration of one sources process."""

    emissions: SourcesConfig
    clusters: tuple[int, ...]
    """The IoT clusters of this process."""
    providers: tuple[str, ...]
    """Who may send results of jobs; the Cloud is the last."""
