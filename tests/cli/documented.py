"""The commands that the README and the docs show, and what they are shown to print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import NamedTuple

from support import ROOT

PAGES = {
    ("README.md",): 2,
    ("docs/scenarios.md",): 2,
    ("docs/records.md",): 1,
    ("docs/agents.md",): 2,
    ("docs/quickstart.md", "docs/tutorials/own_policy.md", "docs/tutorials/boundary.md"): 7,
    ("docs/tutorials/own_agent.md",): 0,
    ("docs/tutorials/own_topology.md",): 1,
}
"""The pages whose commands a reader can copy one after the other, several in one folder where they
share a run; the others need a second terminal, Docker, or minutes. How many outputs they show, as
text or picture, that do not take minutes to print."""
FENCED = re.compile(
    r"""^```(?P<language>\w*)(?:[ ]title="(?P<title>[^"]+)")?\n(?P<body>.*?)^```\n
    (?:\n!\[[^\]]*\]\((?P<picture>[^)]+\.svg)\))?""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
"""A block of code, the name of the file that it is, and the picture of what it prints."""
PRINTED = re.compile(r"<desc>(.*?)</desc>", re.DOTALL)
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
        if "--around-events" in self.words:  # events lie before the scenario's own horizon
            return [*self.words, "--seeds", "2"]
        return [*self.words, *SHORTER.get(self.name, ())]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def pages() -> list[str]:
    """Return all pages of the repository."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return ["README.md", "CONTRIBUTING.md", *(path.relative_to(ROOT).as_posix() for path in found)]


def commands(page: str) -> list[Command]:
    """Return the commands of a page in the order of reading."""
    text = read(page)
    places = [*_fenced(page), *_inline(text)]
    return [command for _, command in sorted(places, key=lambda place: place[0])]


def _fenced(page: str) -> Iterator[tuple[int, Command]]:
    for block in FENCED.finditer(read(page)):
        body = block["body"].replace("\\\n", " ")
        if body.startswith("$ fogveil"):
            first, _, output = body.partition("\n")
            yield block.start(), Command(first.removeprefix("$ "), output)
        else:
            printed = (
                _pictured((ROOT / page).parent / block["picture"]) if block["picture"] else None
            )
            for line in body.splitlines():
                if line.startswith("fogveil "):
                    yield block.start(), Command(line, printed)


def _pictured(picture: Path) -> str | None:
    """Return the text that a picture of a command shows."""
    printed = PRINTED.search(picture.read_text(encoding="utf-8"))
    return unescape(printed[1]) if printed else None


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
    return next(text for text in python_blocks(page) if word in text)


def python_blocks(page: str, *, titled: bool = True) -> list[str]:
    """Return the Python examples of a page, with or without those that are files."""
    return [
        block["body"]
        for block in FENCED.finditer(read(page))
        if block["language"] == "python" and (titled or not block["title"])
    ]


def write_examples(folder: Path, page: str) -> None:
    """Write the files that the commands of a page name."""
    (folder / "my_policy.py").write_text(python_example("README.md", "(Policy)"), encoding="utf-8")
    (folder / "short.toml").write_text(TRAINING, encoding="utf-8")
    for block in FENCED.finditer(read(page)):
        if block["title"] and block["title"] != "short.toml":  # ours is shorter still
            (folder / block["title"]).write_text(block["body"], encoding="utf-8")
