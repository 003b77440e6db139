"""The canonical form of what participants leave on the machine: processes, files, exit codes.

Which of it others can see depends on how a run is launched. None of it may depend on a secret, but
a participant's own record and configuration.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from fogveil.protocol.identity import AGENT, BROKER
from fogveil.protocol.participant import LAUNCHER
from fogveil.testbed.launch.testbed import Testbed
from fogveil.testbed.privacy.audit.twins.form import Channel, Form

PROCESSES, FILES, STREAMS, CODES = "process table", "file system", "standard streams", "exit code"
"""Channels of the machine, of which everybody is a receiver."""
MACHINE = "the machine"
DRAWN = re.compile(r"^(identity|policy-\d+)/|^broker/|\.pid$")
"""Files whose content is drawn anew in every run."""
OWN_RECORDS = re.compile(r"^(config\.json|journal-\d+\.csv|feedback-\d+\.csv)$")
"""Files of a participant that hold its own secrets, or times that only it may know."""
NUMBERS = re.compile(r'(?<=:)\d{4,5}\b|(?<=process )\d+\b|(?<="user": )\d+\b')
"""Ports, process ids and user ids."""
DECISIONS = Channel("the launcher", AGENT, "decisions")
CONFIGURATION = Channel("the launcher", AGENT, "configuration")


def add_processes(form: Form, environments: dict[str, list[str]], folder: Path) -> None:
    """Add the command line and the environment of each process."""
    for name, texts in environments.items():
        channel = Channel(name, MACHINE, PROCESSES)
        form.content[channel] = [_blank(form, text, folder) for text in texts]


def add_outcome(form: Form, testbed: Testbed, folder: Path) -> None:
    """Add what is left of a run that has ended."""
    owners = {user: name for name, user in testbed.split.users.items()}
    for name, participant in testbed.participants.items():
        code = Channel(name, MACHINE, CODES)
        form.content[code].append(str(participant.process.poll()))
        lines = (line for line in testbed.output.get(name, ()) if name != LAUNCHER)
        streams = Channel(name, MACHINE, STREAMS)
        form.content[streams] = [_blank(form, line, folder) for line in lines]
    for name in (*testbed.participants, BROKER):
        home = testbed.split.folder_of(name)
        channel = Channel(name, MACHINE, FILES)
        form.content[channel] = sorted(_file(form, path, home, owners) for path in _tree(home))
    config = (testbed.split.folder_of(AGENT) / "config.json").read_text(encoding="utf-8")
    form.content[CONFIGURATION] = [_blank(form, line, folder) for line in config.split(",")]
    record = (testbed.split.folder_of(AGENT) / "decisions-0000.csv").read_text(encoding="ascii")
    form.content[DECISIONS] = record.splitlines()


def _tree(home: Path) -> list[Path]:
    return [home, *home.rglob("*")] if home.exists() else []


def _file(form: Form, path: Path, home: Path, owners: dict[int, str]) -> str:
    """Return a file's name, mode and owner, and its size where that is nobody's secret."""
    facts = path.lstat()
    name = path.relative_to(home).as_posix()
    owner = owners.get(facts.st_uid, "launcher")
    text = f"{form.blank(name)} {stat.filemode(facts.st_mode)} {owner} {facts.st_nlink}"
    public = not (DRAWN.search(name) or OWN_RECORDS.search(name) or home.name == BROKER)
    return f"{text} {facts.st_size}" if public and path.is_file() else text


def _blank(form: Form, text: str, folder: Path) -> str:
    return NUMBERS.sub("N", form.blank(text).replace(str(folder), "FOLDER"))
