"""A training as work: on this machine in its folder, elsewhere in a copy that comes back whole."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.training_state import AGENT_FILE
from fogveil.agent.learning.transfer import Transfer
from fogveil.testbed.experiments.embedded_training import train
from fogveil.testbed.records.output import reporting_write_errors, write_json
from fogveil.testbed.records.provenance import provenance
from fogveil.testbed.records.training_log import DESCRIPTION, describe_transfer
from fogveil.testbed.scenario import Scenario
from fogveil.testbed.workers.files import FileList, Located, read_folder, write_folder

Folder = dict[str, bytes]
"""The files of a training by their path in its folder."""


@dataclass(frozen=True)
class TrainingWork:
    """A training, which is its own order.

    On the driver's machine its checkpoints lie in its folder, so that it continues from the last
    one. A worker elsewhere begins with what is in that folder, and returns it when it has finished.
    """

    scenario: Scenario
    agent: str
    folder: Path
    hyperparameters: Hyperparameters
    transfer: Transfer | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    def order(self) -> TrainingWork:
        """Return itself: it has all that a worker needs."""
        return self

    def list_files(self, files: FileList) -> None:
        """Name the files of the scenario, the agent to start from, and what is trained already."""
        files.add_scenario(self.scenario)
        files.add_folder(self.folder)
        if self.transfer:
            files.add(self.transfer.file)

    def compute(self, located: Located) -> Folder:
        """Train, or continue; return the folder's content unless it is the driver's own."""
        with located.folder(self.folder) as folder:
            scenario, start = located.scenario(self.scenario), self.transfer
            if start:
                start = replace(start, file=located.path(start.file))
            train(scenario, self.agent, folder, self.hyperparameters, transfer=start)
            return {} if located.here else read_folder(folder)

    def keep(self, found: Folder) -> None:
        """Write what came from elsewhere; the agent last, by which the training is finished."""
        if not found:
            return
        agent = found.pop(AGENT_FILE)
        with reporting_write_errors(self.folder):
            write_folder(self.folder, found)
            path = self.folder / DESCRIPTION
            described = json.loads(path.read_text(encoding="utf-8"))
            own = {**describe_transfer(self.transfer), "provenance": provenance()}
            write_json(path, {**described, **own})
            write_folder(self.folder, {AGENT_FILE: agent})
