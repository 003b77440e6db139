"""A page in memory, and its HTML: one file that holds its figures, its style and its script.

A kind of result becomes a page by returning sections; how they look is decided here alone.
"""

from __future__ import annotations

import json
import re
import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup
from rich.table import Table

from fogveil.core.safe_text import safe_lines
from fogveil.testbed.report.table_files import LATEX, looks_numeric


def _as_address(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


@dataclass(frozen=True)
class Facts:
    """Names and values, such as where a result comes from."""

    values: Mapping[str, str]
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str
    kind: str = field(default="paragraph", init=False)


@dataclass(frozen=True)
class DataTable:
    """A table that the reader can sort, and copy as CSV or LaTeX."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    kind: str = field(default="table", init=False)

    @property
    def alignments(self) -> list[str]:
        """How each column is aligned: numbers to the right."""
        columns = zip(*self.rows, strict=True)
        kinds = ["number" if all(map(looks_numeric, cells)) else "text" for cells in columns]
        return kinds or ["text"] * len(self.head)

    @classmethod
    def of(cls, table: Table) -> DataTable:
        """Return a table that is printed on a terminal as one of a page."""
        cells = zip(*(map(str, column.cells) for column in table.columns), strict=True)
        head = [str(column.header) for column in table.columns]
        caption = str(table.caption or "")
        return cls(str(table.title or ""), head, list(cells), caption)


@dataclass(frozen=True)
class Picture:
    """A figure, and the command that draws it again."""

    title: str
    svg: str
    command: str
    kind: str = field(default="picture", init=False)

    @property
    def source(self) -> str:
        """The figure as an address that holds it."""
        return _as_address(self.svg)

    @classmethod
    def drawn(cls, title: str, command: str, draw: Callable[..., None], *arguments: Any) -> Picture:
        """Return what `draw(*arguments, path)` draws; the path has no suffix."""
        with tempfile.TemporaryDirectory(prefix="fogveil-figure-") as folder:
            path = Path(folder) / "figure"
            draw(*arguments, path)
            return cls(title, path.with_suffix(".svg").read_text(encoding="utf-8"), command)


@dataclass(frozen=True)
class Listing:
    """A long text that the reader opens."""

    title: str
    text: str
    kind: str = field(default="listing", init=False)


@dataclass(frozen=True)
class VerdictRow:
    """One promise and what became of it."""

    verdict: str
    promise: str
    evidence: str
    details: Sequence[str] = ()


@dataclass(frozen=True)
class Verdicts:
    """Promises with their verdicts and the evidence."""

    rows: Sequence[VerdictRow]
    kind: str = field(default="verdicts", init=False)


@dataclass(frozen=True)
class Prose:
    """Text in Markdown; its tables sort, and its figures are put into the page."""

    markdown: str
    folder: Path
    """Where the figures lie: of NAME.png the page holds NAME.svg."""
    kind: str = field(default="prose", init=False)

    @property
    def html(self) -> Markup:
        """The text as HTML; HTML in the Markdown is shown as text."""
        parser = MarkdownIt("commonmark", {"html": False}).enable("table")
        tokens = parser.parse(self.markdown)
        for token in (child for block in tokens for child in block.children or ()):
            if token.type == "image":
                svg = (self.folder / str(token.attrs["src"])).with_suffix(".svg")
                token.attrs["src"] = _as_address(svg.read_text(encoding="utf-8"))
        return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 (ours)


Part = Facts | Paragraph | DataTable | Picture | Listing | Verdicts | Prose


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Document:
    """A page."""

    title: str
    sections: Sequence[Section]


def render(document: Document) -> str:
    """Return the page's HTML."""
    environment = Environment(
        loader=PackageLoader("fogveil.testbed.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_safe,
    )
    folder = files("fogveil.testbed.page")
    return environment.get_template("page.html.jinja").render(
        document=document,
        style=(folder / "page.css").read_text(encoding="utf-8"),
        script=(folder / "page.js").read_text(encoding="utf-8"),
        latex=json.dumps({chr(code): text for code, text in LATEX.items()}),
    )


def _safe(value: Any) -> Any:
    """Take control characters out of texts, which may quote what a participant wrote."""
    return safe_lines(value) if type(value) is str else value


def markdown_document(text: str, folder: Path) -> Document:
    """Return a page in Markdown as a document, a section for each heading of the second level."""
    head, *others = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, rest = head.removeprefix("# ").partition("\n")
    sections = [Section("About", [Prose(rest, folder)])]
    for part in others:
        heading, _, rest = part.partition("\n")
        sections.append(Section(heading.replace("`", ""), [Prose(rest, folder)]))
    return Document(title, sections)


def scenario_listing(scenario: Mapping[str, Any]) -> Listing:
    """Return a scenario as a file that runs again."""
    return Listing("scenario (TOML: save it as a file and run it)", as_toml(scenario))


def as_toml(content: Mapping[str, Any]) -> str:
    """Return content as TOML, which has no null: a key without a value is left out."""
    return tomli_w.dumps(_without_nulls(content))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def provenance_facts(result: Mapping[str, Any]) -> Facts:
    """Return where a result comes from: seed, run hash, commit, versions, command, date."""
    origin = result.get("provenance") or {}
    commit = origin.get("commit") or "unknown"
    if origin.get("uncommitted_changes"):
        commit += ", with uncommitted changes"
    versions = origin.get("versions") or result.get("versions") or {}
    values = {
        "seed": result.get("seed"),
        "run hash": result.get("run_hash"),
        "command": origin.get("command"),
        "commit": commit,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "date": origin.get("date"),
    }
    return Facts({key: str(value) for key, value in values.items() if value})
