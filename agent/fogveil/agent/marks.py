"""Providers that the agent has marked: it reads nothing of theirs, and places nothing on them.

A mark is kept in the agent's folder, with the counts that it was told before it. So an agent that
is lost and started again decides the same, whatever the marked provider says this time.
"""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from fogveil.agent.settings import AgentSettings
from fogveil.core.disclosure import Level
from fogveil.core.errors import MisbehaviourError
from fogveil.core.files import open_private, read_untrusted
from fogveil.core.safe_text import safe_text

log = logging.getLogger("agent")

MARKS = "marked.jsonl"
LONGEST_REASON = 300
"""Characters."""


@dataclass(frozen=True)
class Mark:
    """Who was marked, when and why."""

    who: str
    episode: int
    time: float
    """Simulated time."""
    why: str
    told: Sequence[int]
    """What it had told in that episode, up to then."""
    looks: Sequence[str] = ()
    """What it had told at level `full` beside it, in hexadecimal digits."""


class Marks:
    """The marks of a run, and what those who are not marked have told in this episode.

    Where the run does not go on after a loss, nobody is marked: who misbehaves ends the run. So do
    the Cloud, on which all others depend, and whoever is the last. At level `total` the others'
    shares are worth nothing without those of the marked one, so it ends the run, too.
    """

    def __init__(self, settings: AgentSettings) -> None:
        """Begin with the marks of an agent that was lost."""
        view = settings.view
        self.enabled = settings.recovers and view.disclosed is not Level.TOTAL
        """Whether anybody is marked."""
        self._nodes, self._path = view.nodes, settings.folder / MARKS
        self._kept = list(read_marks(settings.folder)) if self.enabled else []
        self.now = 0.0
        """Simulated time."""
        self.begin(0)

    def begin(self, episode: int) -> None:
        """Begin an episode."""
        self._episode = episode
        self.names = {mark.who for mark in self._kept if mark.episode < episode}
        """Who is marked."""
        self._again = {mark.who: mark for mark in self._kept if mark.episode == episode}
        """Whom an agent before us had marked in this episode: later on, so are they by us."""
        self._told = {name: array("I") for name in self._nodes if self.enabled}
        self._looks: dict[str, list[str]] = {name: [] for name in self._told}
        self._unsaid: list[str] = []

    @property
    def numbers(self) -> list[int]:
        """The numbers of those who are marked."""
        return [number for number, name in enumerate(self._nodes) if name in self.names]

    def can_be(self, name: str) -> bool:
        """Return whether a provider may be marked, in place of ending the run."""
        return self.enabled and name in self._nodes and len(self.names) + 1 < len(self._nodes)

    def add(self, name: str, why: str) -> None:
        """Mark a provider, or raise an error that names it."""
        if name in self.names:
            return
        if not self.can_be(name):
            raise MisbehaviourError(name, why)
        if name not in self._again:
            told = self._told[name], self._looks[name]
            mark = Mark(name, self._episode, self.now, why[:LONGEST_REASON], *told)
            self._kept.append(mark)
            self._write(mark)
        self.names.add(name)
        self._unsaid.append(name)
        log.warning("marked %s at simulated time %.6g: %s", name, self.now, why)

    def _write(self, mark: Mark) -> None:
        plain = {**vars(mark), "told": list(mark.told)}
        with open_private(self._path, "a") as file:
            file.write(json.dumps(plain) + "\n")

    def take_unsaid(self) -> list[int]:
        """Return the numbers of those who were marked since the last call."""
        unsaid, self._unsaid = self._unsaid, []
        return [self._nodes.index(name) for name in unsaid]

    # --- what they told --------------------------------------------------------------------------

    def hear(self, name: str, counts: Iterable[int]) -> None:
        """Keep what a provider has told, where it may be needed again."""
        if name in self._told:
            self._told[name].extend(counts)

    def is_known(self, name: str) -> bool:
        """Return whether it is known already what a provider tells: it will be marked."""
        return name in self._again

    def hear_look(self, name: str, answer: bytes) -> None:
        """Keep what a provider has told at level `full`."""
        if name in self._looks:
            self._looks[name].append(answer.hex())

    def repeat_look(self, name: str) -> bytes | None:
        """Return what a provider told that will be marked; it is marked now if that is None."""
        mark, index = self._again[name], len(self._looks[name])
        if index < len(mark.looks):
            return bytes.fromhex(mark.looks[index])
        self.add(name, mark.why)
        return None

    def repeat(self, name: str, size: int) -> Sequence[int] | None:
        """Return what a provider told that will be marked; it is marked now if that is None."""
        mark, begin = self._again[name], len(self._told[name])
        column = mark.told[begin : begin + size]
        if len(column) == size:
            return column
        self.add(name, mark.why)
        return None


def read_marks(folder: Path, limit: int = 2**30) -> Iterable[Mark]:
    """Yield the marks in an agent's folder; ValueError where they are none.

    A last line that is cut off was written by an agent that was lost before it acted on it.
    """
    try:
        content = read_untrusted(folder / MARKS, limit)
    except FileNotFoundError:
        return
    for line in content.split(b"\n")[:-1]:
        try:
            found: Any = json.loads(line)
            mark = Mark(**found)
            mark = Mark(
                str(mark.who),
                int(mark.episode),
                float(mark.time),
                safe_text(str(mark.why), LONGEST_REASON),
                [int(count) for count in mark.told],
                [bytes.fromhex(look).hex() for look in mark.looks],
            )
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"{MARKS} holds something else than marks") from error
        if not isfinite(mark.time):
            raise ValueError(f"{MARKS} holds a mark at no time")
        yield mark


def marks_by(marks: Iterable[Mark], episode: int, names: Collection[str]) -> dict[str, Mark]:
    """Return the first mark of each provider that had one by the end of an episode."""
    found: dict[str, Mark] = {}
    for mark in marks:
        if mark.episode <= episode and mark.who in names:
            found.setdefault(mark.who, mark)
    return found
