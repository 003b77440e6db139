"""The commands that the README and the docs show, and what they are shown to print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support import ROOT

PAGES = {"README.md": 2, "docs/scenarios.md": 2, "docs/records.md": 1, "docs/agents.md": 2}
"""The pages whose commands a reader can copy one after the other; the others need a second
terminal, Docker, or hours. How many outputs each shows that do not take minutes to print."""
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(fogveil [^`]+)`")
TRAINING = "buffer_capacity = 1000\ntraining_steps = 20\n"
SHORTER = {
    "compare": ("--seeds", "2", "--horizons", "300"),
    "evaluate": ("--seeds", "2", "--horizons", "300"),
    "league": ("--quick",),
    "train": ("--horizon", "300", "--hyperparameters", "short.toml"),
}
"""Options that make a command's work small; of two of one name the last one counts."""
VARYING = (
    (re.compile(r"simulated time [\d.]+"), "simulated time …"),  # of an example among equals
)


class Command(NamedTuple):
    """A command of a page, and the output that is shown below it, if any."""

    text: str
    output: str | None

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    @property
    def name(self) -> str:
        return self.words[1]

    def shortened(self) -> list[str]:
        """Return the command with little work to do."""
        if self.name == "audit":
            return [word.replace("paper", "tiny") for word in self.words]
        return [*self.words, *SHORTER.get(self.name, ())]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands(page: str) -> list[Command]:
    """Return the commands of a page in the order of reading."""
    text = read(page)
    places = [*_fenced(text), *_inline(text)]
    return [command for _, command in sorted(places, key=lambda place: place[0])]


def _fenced(text: str) -> Iterator[tuple[int, Command]]:
    for block in FENCED.finditer(text):
        body = block[2].replace("\\\n", " ")
        if body.startswith("$ fogveil"):
            first, _, output = body.partition("\n")
            yield block.start(), Command(first.removeprefix("$ "), output)
        else:
            for line in body.splitlines():
                if line.startswith("fogveil "):
                    yield block.start(), Command(line, None)


def _inline(text: str) -> Iterator[tuple[int, Command]]:
    outside = FENCED.sub(lambda block: " " * len(block[0]), text)
    for mention in INLINE.finditer(outside):
        words = mention[1].split()
        if len(words) > 2 or words[1] == "policies":  # others name a command without arguments
            yield mention.start(), Command(" ".join(words), None)


def comparable(output: str) -> list[str]:
    """Return the lines of an output without what differs from run to run."""
    for pattern, replacement in VARYING:
        output = pattern.sub(replacement, output)
    return [line.rstrip() for line in output.splitlines() if line.strip()]


def python_example(page: str, word: str) -> str:
    """Return the Python example of a page that holds a word."""
    return next(block[2] for block in FENCED.finditer(read(page)) if word in block[2] and block[1])


def write_examples(folder: Path) -> None:
    """Write the files that the commands of the pages name."""
    (folder / "my_policy.py").write_text(python_example("README.md", "(Policy)"), encoding="utf-8")
    (folder / "short.toml").write_text(TRAINING, encoding="utf-8")
