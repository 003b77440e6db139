"""Tables as files: CSV and Parquet with every number, Markdown and LaTeX for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fogveil.testbed.records.output import reporting_write_errors
from fogveil.testbed.report.markdown import markdown_table

Rows: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]

MARKDOWN = str.maketrans({"|": r"\|", "\n": " "})
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "×": r"$\times$",
        "±": r"$\pm$",
        "β": r"$\beta$",
        "–": "--",
        "…": r"\dots{}",
        "\n": " ",
    }
)


def write_tables(
    rows: Rows,
    stem: Path,
    *,
    shown: Rows | None = None,
    caption: str = "",
    metadata: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write STEM.csv, .parquet, .md and .tex; return their paths.

    Markdown and LaTeX show `shown`, if given, in place of `rows`. The metadata go to the Parquet
    file's schema.
    """
    table = _as_table(rows)
    if metadata:
        table = table.replace_schema_metadata(dict(metadata))
    texts = _as_texts(rows if shown is None else shown)
    csv, parquet, markdown, latex = paths = [
        stem.with_name(f"{stem.name}.{kind}") for kind in ("csv", "parquet", "md", "tex")
    ]
    with reporting_write_errors(stem):
        stem.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.csv.write_csv(table, csv)
        pyarrow.parquet.write_table(table, parquet)
        markdown.write_text(markdown_text(texts, caption), encoding="utf-8")
        latex.write_text(latex_text(texts, caption), encoding="utf-8")
    return paths


def markdown_text(rows: Sequence[Mapping[str, str]], caption: str = "") -> str:
    """Return a table of texts in Markdown, the caption below it."""
    head = list(rows[0]) if rows else []
    cells = [[row[name].translate(MARKDOWN) for name in head] for row in rows]
    below = f"\n{caption}\n" if caption else ""
    return markdown_table([name.translate(MARKDOWN) for name in head], cells) + below


def latex_text(rows: Sequence[Mapping[str, str]], caption: str = "") -> str:
    r"""Return a table of texts in LaTeX; it needs \usepackage{booktabs}."""
    head = list(rows[0]) if rows else []
    lines = [[name.translate(LATEX) for name in head]]
    lines += [[row[name].translate(LATEX) for name in head] for row in rows]
    top, *body = [" & ".join(cells) + r" \\" for cells in lines]
    numeric = [name for name in head if all(looks_numeric(row[name]) for row in rows)]
    columns = "".join("r" if name in numeric else "l" for name in head)
    parts = [
        "% \\usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{caption.translate(LATEX)}}}"] if caption else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        top,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(parts) + "\n"


def looks_numeric(text: str) -> bool:
    """Return whether a text is a number, perhaps with its interval, or a dash in its place."""
    return text == "–" or text.lstrip("-")[:1].isdigit()


def _as_table(rows: Rows) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])


def _as_texts(rows: Rows) -> list[dict[str, str]]:
    plain = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    names = dict.fromkeys(name for row in plain for name in row)
    return [{name: _as_text(row.get(name)) for name in names} for row in plain]


def _as_text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
