"""What a provider is told: its own resources, and whom its results go to."""

from __future__ import annotations

from dataclasses import dataclass

from fogveil.protocol.settings import Settings
from fogveil.provider_node.provider import ProviderConfig


@dataclass(frozen=True)
class TotalMembers:
    """Who adds up to a total at level `total`."""

    members: tuple[str, ...]
    cloud: str


@dataclass(frozen=True, kw_only=True)
class ProviderSettings(Settings):
    """The configuration of one Fog provider, or of the Cloud."""

    provider: ProviderConfig
    total: TotalMembers | None
    owners: tuple[str, ...]
    """The sources process of each cluster, which takes the results of its jobs."""
    fogs: tuple[str, ...]
    """Who sends aggregates: all Fog providers, for the Cloud; nobody, for a Fog provider."""
    listen: str
    """Where to listen, as host:port; port 0 is a free one."""
    pads: bool = True
    """Whether to send messages of public sizes."""
