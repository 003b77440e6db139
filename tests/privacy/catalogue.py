"""The catalogue of breakages: challenges to the audit, each with the check that must catch it."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "breakages"


@dataclass(frozen=True)
class Breakage:
    """One file of the catalogue."""

    file: Path
    about: str
    """What leaks to whom through which channel."""
    caught_by: str | None
    """The check that must catch it; None for a control, which leaks nothing."""
    sabotage: Callable[[Path], None]
    also: tuple[str, ...] = ()
    """Other checks that notice it."""
    level: str = "count"
    broker: str = "mosquitto"
    episodes: int = 1
    runs: int = 1
    """Runs that the audit must compare in order to notice it."""
    names: str = ""
    """Whom the run's last sentence must name, where the run ends by itself."""
    ends_run: bool = False
    """Whether the run ends after the check has caught it, and hides what else is broken."""
    confined: bool = False
    """Whether it reaches nobody where participants have namespaces of their own."""

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def replaces(self) -> bool:
        return "replace(" in self.file.read_text()

    @property
    def checks(self) -> set[str]:
        return {*([self.caught_by] if self.caught_by else []), *self.also}

    @classmethod
    def read(cls, file: Path) -> Breakage:
        values = runpy.run_path(str(file))
        named = {
            field: values[field.upper()]
            for field in (
                "also",
                "level",
                "broker",
                "episodes",
                "runs",
                "names",
                "ends_run",
                "confined",
            )
            if field.upper() in values
        }
        caught_by = values.get("CAUGHT_BY")
        return cls(file, values["__doc__"] or "", caught_by, values["sabotage"], **named)


def read_all(files: Iterable[Path]) -> list[Breakage]:
    return [Breakage.read(file) for file in sorted(files)]


BREAKAGES = read_all(FOLDER.glob("*.py"))
CONTROLS = read_all((FOLDER / "controls").glob("*.py"))
