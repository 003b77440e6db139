"""Printing lines and tables that are never wrapped or cut, so that they can be searched."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fogveil.core.safe_text import safe_text

UNLIMITED = 10_000
"""Characters: wider than any table here."""


def print_line(console: Console, line: str, style: str | None = None) -> None:
    """Print a line, safe for a terminal, without wrapping, markup or highlighting."""
    console.print(
        safe_text(line, longest=None), markup=False, highlight=False, soft_wrap=True, style=style
    )


def print_table(
    console: Console,
    columns: Iterable[str],
    rows: Iterable[Iterable[str]],
    numeric: Collection[str] = (),
) -> None:
    """Print a table at its full width; the `numeric` columns are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in numeric else "left")
    for row in rows:
        table.add_row(*(Text(safe_text(cell)) for cell in row))
    options = console.options.update_width(UNLIMITED)
    table.width = Measurement.get(console, options, table).maximum
    console.print(table, highlight=False, soft_wrap=True)


def compact_json(value: Any) -> str:
    """Serialize to JSON without blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
