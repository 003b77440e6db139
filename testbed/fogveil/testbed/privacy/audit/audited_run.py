"""The run that an audit examines: what each participant was configured with, sent and kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fogveil.agent.decision_record import read_record, record_path
from fogveil.protocol.identity import AGENT
from fogveil.protocol.recording import TRAFFIC
from fogveil.testbed.launch.docker.container import ContainerProcess
from fogveil.testbed.launch.participant_config import Plan, Split
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.privacy.inspect.crossing import Crossing
from fogveil.testbed.privacy.inspect.recordings import read_recording
from fogveil.testbed.scenario.world import World


@dataclass
class AuditedRun:
    """A recorded run, with access to what every participant has."""

    world: World
    plan: Plan
    split: Split
    environments: dict[str, list[str]] = field(default_factory=dict)
    """The command line and the environment of each process."""
    logs: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """What each participant wrote to its standard streams."""

    def crossings(self, name: str) -> Iterator[Crossing]:
        """Yield what a participant recorded."""
        return read_recording(self.split.folder_of(name) / TRAFFIC)

    def decision_times(self) -> dict[int, list[float]]:
        """Return when the agent decided, by episode."""
        folder = self.split.folder_of(AGENT)
        return {
            episode: [decision.emitted for decision in read_record(record_path(folder, episode))]
            for episode in range(len(self.plan.episodes))
        }

    def visible_to_agent(self) -> Iterator[tuple[str, bytes]]:
        """Yield everything that the agent can see, each with where it sees it."""
        for crossing in self.crossings(AGENT):
            if crossing.receiver == AGENT:
                where = f"{crossing.kind} of {crossing.method} from {crossing.sender}"
                yield where, crossing.payload + json.dumps(crossing.text).encode()
        for path in sorted(self.split.folder_of(AGENT).rglob("*")):
            # The recording was read above; in the file it is hexadecimal.
            if path.is_file() and path.name != TRAFFIC:
                yield f"its file {path.name}", path.read_bytes()
        for text in self.environments.get(AGENT, ()):
            yield "its command line and environment", text.encode()
        for line in self.logs.get(AGENT, ()):
            yield "its log", line.encode()


def process_environments(testbed: Testbed) -> dict[str, list[str]]:
    """Return the command line and the environment of everybody who has started, by the system."""
    environments: dict[str, list[str]] = {}
    for name, participant in testbed.participants.items():
        process = participant.process
        if participant.state == "starting":
            continue  # what is there may be the program that encloses it
        if isinstance(process, ContainerProcess):
            environments[name] = process.facts()
            continue
        proc = Path("/proc") / str(process.pid)
        try:
            contents = [(proc / file).read_bytes() for file in ("cmdline", "environ")]
        except OSError:
            continue
        environments[name] = [
            text.decode(errors="replace")
            for content in contents
            for text in content.split(b"\0")
            if text
        ]
    return environments
