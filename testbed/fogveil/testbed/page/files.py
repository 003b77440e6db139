"""Writing pages to files."""

from __future__ import annotations

from pathlib import Path

from fogveil.core.files import write_private
from fogveil.testbed.page.document import Document, render
from fogveil.testbed.records.output import reporting_write_errors


def write_page(document: Document, path: Path) -> None:
    """Write a page, which only its owner can read: it holds what the experimenter knows."""
    text = render(document)
    with reporting_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, text)
