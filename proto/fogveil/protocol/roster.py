"""The roster of a run: its participants by name and role."""

from __future__ import annotations

from dataclasses import dataclass

from fogveil.protocol.identity import AGENT, CLOUD, PROVIDER, SOURCES


@dataclass(frozen=True)
class Roster:
    """The names of the participants, in the order of the scenario."""

    sources: tuple[str, ...]
    fogs: tuple[str, ...]
    cloud: str

    @property
    def all(self) -> tuple[str, ...]:
        """The names of all participants that join the clock."""
        return (*self.sources, AGENT, *self.fogs, self.cloud)

    def role_of(self, name: str) -> str | None:
        """Return the role in a participant's identity; None where nobody has the name."""
        roles = dict.fromkeys(self.sources, SOURCES) | dict.fromkeys(self.fogs, PROVIDER)
        return (roles | {AGENT: AGENT, self.cloud: CLOUD}).get(name)
