"""The league: a fixed set of scenarios and seeds on which any policy is measured alike.

A change of the set, or of a scenario in it, changes its digest. It is then another league, with
another version: results of two versions are never compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fogveil.core.errors import InputError
from fogveil.testbed.scenario import Scenario, load_scenario
from fogveil.testbed.scenario.load import shipped_scenarios

VERSION = 3
ORACLE = "setr"
SEEDS = range(1001, 1006)
"""Far from 1, 2, …, the seeds of our trainings and calibrations."""
QUICK_SEEDS = SEEDS[:2]
RATES = (200, 150, 100)
SERVICES: dict[str, dict[str, Any]] = {
    "exponential": {"distribution": "exponential"},
    "erlang": {"distribution": "erlang", "shape": 4},
}
OTHERS = ("few", "many", "wide", "narrow", "far", "busy", "idle", "mixed")


class DataFile(NamedTuple):
    """A file of real data that is not part of the package, relative to the folder of them all."""

    path: Path
    sha256: str


GEANT = DataFile(
    Path("topologies", "Geant2012.graphml"),
    "8487b2fb091d53f1317035162df0d8ef436c9e1d10727e26865b0ecd89d4786e",
)
ABILENE = DataFile(
    Path("topologies", "Abilene.gml"),
    "6a62415e57c6480069ac208e20d40222df952f7ce1269c732ef9839dff8dfc25",
)
AZURE = DataFile(
    Path("traces", "azure-llm-code.csv"),
    "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
)


@dataclass(frozen=True)
class Entry:
    """One scenario of the league."""

    name: str
    scenario: str
    """The shipped scenario that it is, but for the overrides."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, DataFile] = field(default_factory=dict)
    """Real data, by the key of the scenario that names it."""

    @property
    def file(self) -> Path:
        """The scenario's file; one of the same name in the working directory is not meant."""
        return shipped_scenarios()[self.scenario]

    def overrides_for(self, data: Path | None) -> dict[str, Any]:
        """Return the overrides, with the files of a folder of real data and the first seed."""
        files = {key: str((data / file.path).resolve()) for key, file in self.files.items() if data}
        return {**self.overrides, **files, "seed": SEEDS[0]}

    def load(self, data: Path | None = None) -> Scenario:
        """Return the scenario."""
        return load_scenario(self.file, self.overrides_for(data))

    @property
    def needed(self) -> str:
        """The files that it needs, in words."""
        return " and ".join(str(file.path) for file in self.files.values())


ENTRIES = (
    *(
        Entry(f"{name}-{rate}", name, {"sources.scale": float(rate)})
        for name in ("paper", "stress")
        for rate in RATES
    ),
    *(
        Entry(f"{name}-{service}", name, {"sources.scale": 150.0, "service": table})
        for name in ("paper", "stress")
        for service, table in SERVICES.items()
    ),
    *(Entry(name, name) for name in OTHERS),
    Entry("park", "park"),
    Entry("geant", "geant", files={"topology.file": GEANT}),
    Entry("azure", "azure", files={"topology.file": ABILENE, "sources.file": AZURE}),
)
SHIPPED = tuple(entry.name for entry in ENTRIES if not entry.files)
"""The scenarios of the score that everybody can compute."""


@cache
def digest() -> str:
    """Return a digest of the definition: scenarios, seeds, real data and the oracle."""
    content: list[Any] = [VERSION, ORACLE, list(SEEDS)]
    for entry in ENTRIES:
        scenario = entry.load().model_dump(mode="json", exclude_unset=True)
        for key, file in entry.files.items():
            table, _, name = key.partition(".")
            scenario[table][name] = file.sha256
        content.append([entry.name, scenario])
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def available(data: Path | None) -> tuple[list[Entry], list[Entry]]:
    """Return the entries that can be run, and those left out because their data is missing."""
    if data is None:
        return [e for e in ENTRIES if not e.files], [e for e in ENTRIES if e.files]
    for file in sorted({file for entry in ENTRIES for file in entry.files.values()}):
        try:
            content = (data / file.path).read_bytes()
        except OSError as error:
            raise InputError(
                f"{data}: expected {file.path} in this folder of real data, but it cannot be read "
                f"({error.strerror}); without --data and FOGVEIL_DATA its scenario is left out"
            ) from error
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise InputError(
                f"{data / file.path}: is not the file of league {VERSION}, whose SHA-256 is "
                f"{file.sha256[:12]}…; results on another one cannot be compared"
            )
    return list(ENTRIES), []
