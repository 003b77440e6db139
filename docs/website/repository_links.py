"""Links of the repository on the site: pages that link to source files work in both places.

A page of the repository links to files beside it and outside docs/. On the site README.md,
CONTRIBUTING.md and CHANGELOG.md are pages under project/, and every other file or folder that is
linked to is a page under source/ which shows it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = {
    name: f"project/{name.lower()}" for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
}
"""The pages of the repository's root, and where the site has them."""
REFERENCE = {
    "testbed/fogveil/testbed/scenario/models.py": "reference/scenario.md",
    "testbed/fogveil/testbed/cli": "reference/commands.md",
    "agent/fogveil/agent/learning/hyperparameters.py": "reference/hyperparameters.md",
}
"""Sources of which the site has a better page than their text."""
LANGUAGES = {".py": "python", ".toml": "toml", ".proto": "protobuf", ".yaml": "yaml"}
LINK = re.compile(
    r"(?P<code>^```.*?^```|`[^`\n]+`)|\]\((?P<to>[^)\s:#]+)", re.DOTALL | re.MULTILINE
)
"""A piece of code, in which nothing is a link, or the beginning of a link to a file."""
HIDDEN = ("__pycache__", ".")


def rewrite(text: str, path: str) -> str:
    """Return the text of a page of the repository with its links as the site has them.

    >>> rewrite("[f](../proto/x.py#L1) `[a](../b)`", "docs/a.md")
    '[f](source/proto/x.py.md#L1) `[a](../b)`'
    >>> rewrite("[g](docs/glossary.md) [c](CHANGELOG.md)", "README.md")
    '[g](../glossary.md) [c](changelog.md)'
    """
    folder = posixpath.dirname(site_address(path)) or "."

    def relink(match: re.Match[str]) -> str:
        if match["to"] is None:
            return match[0]
        return f"]({posixpath.relpath(site_address(_resolve(path, match['to'])), folder)}"

    return LINK.sub(relink, text)


def site_address(path: str) -> str:
    """Return the address on the site of a path of the repository.

    >>> site_address("docs/images/map.png"), site_address("CHANGELOG.md"), site_address("scenarios")
    ('images/map.png', 'project/changelog.md', 'source/scenarios.md')
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return (PROJECT | REFERENCE).get(path, f"source/{path}.md")


def source_pages(pages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return address and text of a page for each file and folder that some page links to.

    `pages` has the text of each page by its path in the repository.
    """
    waiting = sorted({path for page, text in pages.items() for path in _outside(page, text)})
    shown = set()
    for path in waiting:  # which grows by what folders hold
        if path in shown:
            continue
        shown.add(path)
        if not (ROOT / path).is_dir():
            yield site_address(path), _file_page(path)
            continue
        inside = sorted(
            each for each in (ROOT / path).iterdir() if not each.name.startswith(HIDDEN)
        )
        waiting += [each.relative_to(ROOT).as_posix() for each in inside]
        items = [
            f"- [{each.name}{'/' * each.is_dir()}]({Path(path).name}/{each.name}.md)"
            for each in inside
        ]
        yield site_address(path), _page(f"{path}/", "\n".join(items))


def _outside(page: str, text: str) -> Iterator[str]:
    """Return the paths outside docs/ that a page links to, without those that do not exist."""
    for match in LINK.finditer(text):
        path = _resolve(page, match["to"]) if match["to"] else ""
        inside = site_address(path).startswith("source/") and not path.startswith("..")
        if path and inside and (ROOT / path).exists():
            yield path


def _resolve(page: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _file_page(path: str) -> str:
    try:
        text = (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return _page(path, f"{(ROOT / path).stat().st_size:,} bytes, no text.")
    language = LANGUAGES.get(Path(path).suffix, "text")
    return _page(path, f'````{language} linenums="1"\n{text.rstrip()}\n````')


def _page(title: str, body: str) -> str:
    return f"---\ntitle: {title}\nsearch:\n  exclude: true\n---\n\n# `{title}`\n\n{body}\n"
