"""What MkDocs calls while it builds the site: generated pages, links, pictures in pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.website import api_page, command_page, key_pages
from docs.website.repository_links import PROJECT, ROOT, rewrite, site_address, source_pages

DRAWING = re.compile(
    r'<p><img alt="[^"]*" src="[^"]*(?P<path>images/architecture/[\w-]+\.svg)" ?/?></p>'
)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are generated: the reference, the repository's own, source files."""
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PROJECT}
    for name, text in pages.items():
        files.append(File.generated(config, site_address(name), content=rewrite(text, name)))
    for file in files.documentation_pages():
        if file.generated_by is None:
            pages[f"docs/{file.src_uri}"] = file.content_string
    reference = {
        "reference/scenario.md": key_pages.scenario_page(),
        "reference/hyperparameters.md": key_pages.hyperparameters_page(),
        "reference/commands.md": command_page.page(),
        "reference/api.md": api_page.page("fogveil.api"),
    }
    for address, content in (*reference.items(), *source_pages(pages)):
        files.append(File.generated(config, address, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Rewrite the links of a page that lies in the repository."""
    if page.file.generated_by is not None:
        return markdown
    return rewrite(markdown, f"docs/{page.file.src_uri}")


def on_page_content(html: str, *, config: MkDocsConfig, **_: Any) -> str:
    """Put drawings into the page itself, so that they follow its choice of light or dark."""

    def inline(match: re.Match[str]) -> str:
        drawing = (Path(config.docs_dir) / match["path"]).read_text(encoding="utf-8")
        return f'<div class="drawing">{drawing}</div>'

    return DRAWING.sub(inline, html)
