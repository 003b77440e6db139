"""The reference page of a Python module: every public name with signature and docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

REPRESENTATION = re.compile(r" at 0x[0-9a-f]+")
EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)
INHERITED = ("model_", "_")
"""Beginnings of members that are not the module's own."""


def page(module_name: str) -> str:
    """Return the reference of all names in a module's `__all__`."""
    module = importlib.import_module(module_name)
    parts = [f"# Python API: `{module_name}`", text_of(module)]
    for name in module.__all__:
        parts += _entry(name, getattr(module, name), 2)
    return "\n\n".join(part for part in parts if part)


def _entry(name: str, value: Any, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} `{name}`"
    if inspect.isclass(value):
        yield _signature(f"class {name}", value)
        yield text_of(value)
        for member, defined in vars(value).items():
            if not member.startswith(INHERITED):
                yield from _member(name, member, defined, depth + 1)
    elif callable(value):
        yield _signature(name, value)
        yield text_of(value)
    else:
        yield f"```python\n{name}: {type(value).__name__} = {value!r}\n```"


def _member(owner: str, name: str, defined: Any, depth: int) -> Iterator[str]:
    plain = inspect.unwrap(getattr(defined, "__func__", defined))
    if isinstance(defined, property):
        yield f"{'#' * depth} `{owner}.{name}`"
        yield text_of(defined)
    elif inspect.isfunction(plain):
        yield f"{'#' * depth} `{owner}.{name}`"
        yield _signature(f"{owner}.{name}", plain)
        yield text_of(plain)


def _signature(name: str, value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"```python\n{name}\n```"
    shown = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    line = f"{name}{signature.replace(parameters=shown)}"
    if len(line) > 80:  # noqa: PLR2004 (what a page shows without scrolling)
        ending = str(signature.replace(parameters=[])).removeprefix("()")
        star = "    *,\n" if any(p.kind is p.KEYWORD_ONLY for p in shown) else ""
        before = [p for p in shown if p.kind is not p.KEYWORD_ONLY]
        after = [p for p in shown if p.kind is p.KEYWORD_ONLY]
        rows = [f"    {p},\n" for p in before] + [star] + [f"    {p},\n" for p in after]
        line = f"{name}(\n{''.join(rows)}){ending}"
    return f"```python\n{REPRESENTATION.sub('', line)}\n```"


def text_of(value: Any) -> str:
    """Return a docstring as Markdown: its doctests become code blocks."""
    text = inspect.getdoc(value) or ""
    return EXAMPLE.sub(lambda example: f"```python\n{example[0].rstrip()}\n```\n", text)
