"""Pictures of commands: `make docs-images` runs those of the pages and draws what they print.

A page is the only place where its commands are written. A block with one command that is followed
by an SVG gets its picture; the printed text is kept in the picture, where a test compares it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

DOCS = Path(__file__).parents[1]
FOGVEIL = str(Path(sys.executable).with_name("fogveil"))
PAGES = (
    "quickstart.md",
    "tutorials/own_policy.md",
    "tutorials/own_topology.md",
    "tutorials/boundary.md",
)
COLUMNS = 88
BLOCK = re.compile(
    r"""^```(?P<language>\w*)(?:[ ]title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```\n
    (?:\n!\[(?P<alt>[^\]]*)\]\((?P<picture>[^)]+\.svg)\))?""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
FIGURES = {
    "quickstart.md": ("runs/tiny-topology.svg", "runs/four/loops.png"),
    "tutorials/own_topology.md": ("runs/cities-topology.svg",),
}
"""Figures that the commands of a page draw themselves."""
FORMAT = """<svg class="terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>{title}</title>
<desc>{text}</desc>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="9" fill="#0f172a"/>
<g fill="#475569"><circle cx="26" cy="22" r="6"/><circle cx="46" cy="22" r="6"/>
<circle cx="66" cy="22" r="6"/></g>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""A terminal without a font from the network; rich's own format names one."""
THEME = TerminalTheme(
    (15, 23, 42),
    (226, 232, 240),
    [
        *((51, 65, 85), (251, 113, 133), (94, 234, 212), (250, 204, 21)),
        *((125, 211, 252), (196, 181, 253), (103, 232, 249), (226, 232, 240)),
    ],
)


def main() -> None:
    """Run the commands of each page one after the other, and draw them."""
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            _follow(DOCS / page, Path(folder))
            for figure in FIGURES.get(page, ()):
                name = "tutorials" if "/" in page else "quickstart"
                shutil.copy(Path(folder, figure), DOCS / "images" / name)


def _follow(page: Path, folder: Path) -> None:
    """Do in a folder what a page says, and draw the commands that it has a picture of."""
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["title"]:
            (folder / block["title"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "python":
            _run([sys.executable, "-c", block["text"]], folder)
        for command in block["text"].splitlines():
            if block["language"] or not command.startswith("fogveil "):
                continue
            printed = _run([FOGVEIL, *shlex.split(command)[1:]], folder)
            if block["picture"]:
                picture = (page.parent / block["picture"]).resolve()
                picture.write_text(draw(command, printed, block["alt"]), encoding="utf-8")
                print(f"written: {picture.relative_to(DOCS)}")


def _run(command: list[str], folder: Path) -> str:
    """Run a command in a terminal of the pictures' width; return what it prints."""
    shown = {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(  # noqa: S603 (commands of our own pages)
        command,
        cwd=folder,
        env={**os.environ, **shown},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{done.stderr}")
    return done.stdout


def draw(command: str, printed: str, title: str) -> str:
    """Return a picture of a terminal in which a command was typed."""
    lines = list(Text.from_ansi(printed).split("\n", allow_blank=True))
    for line in lines:
        line.rstrip()
    width = max(COLUMNS, len(command) + 2, *(line.cell_len for line in lines))
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    for line in _without_blank_ends(lines):
        console.print(line, highlight=False, overflow="ignore", no_wrap=True)
    text = escape("\n".join(line.plain for line in lines))
    code_format = FORMAT.replace("{text}", text.replace("{", "{{").replace("}", "}}"))
    code_format = code_format.replace("{title}", escape(title))
    drawing = console.export_svg(
        theme=THEME, code_format=code_format, font_aspect_ratio=0.6, unique_id=_name(title)
    )
    return "\n".join(line.rstrip() for line in drawing.splitlines()) + "\n"


def _without_blank_ends(lines: list[Text]) -> Iterator[Text]:
    filled = [number for number, line in enumerate(lines) if line.plain.strip()]
    yield from lines[filled[0] : filled[-1] + 1]


def _name(title: str) -> str:
    return "t-" + "-".join(re.findall(r"\w+", title.lower())[:4])


if __name__ == "__main__":
    main()
