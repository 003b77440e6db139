"""The reference page of a Python module: every public name with signature and docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from fogveil.testbed.scenario.models import Scenario

KEYWORD = inspect.Parameter.KEYWORD_ONLY
REPRESENTATION = re.compile(r" at 0x[0-9a-f]+")
QUOTED = re.compile(r"(: |-> )'([^']*)'")
"""An annotation as `from __future__ import annotations` leaves it."""
WIDEST = 80
"""Characters of code that a page shows without scrolling."""
EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)
FIELDS = {Scenario: "Its fields are the [scenario keys](scenario.md)."}
"""Classes whose fields have a page of their own, in place of a signature."""
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
        yield FIELDS[value] if value in FIELDS else _signature(f"class {name}", value)
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
    if inspect.isclass(value) and issubclass(value, Enum):
        members = "\n".join(f"    {member.name} = {member.value!r}" for member in value)
        return f"```python\n{name}:\n{members}\n```"
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"```python\n{name}\n```"
    shown = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    line = f"{name}{signature.replace(parameters=shown)}"
    if len(line) > WIDEST:
        ending = str(signature.replace(parameters=[])).removeprefix("()")
        kinds = [p.kind for p in shown]
        rows = [str(p) for p in shown]
        if KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
            rows.insert(kinds.index(KEYWORD), "*")
        line = "\n".join([f"{name}(", *(f"    {row}," for row in rows), f"){ending}"])
    line = QUOTED.sub(r"\1\2", REPRESENTATION.sub("", line))
    return f"```python\n{line}\n```"


def text_of(value: Any) -> str:
    """Return a docstring as Markdown: its doctests become code blocks."""
    text = inspect.getdoc(value) or ""
    return EXAMPLE.sub(lambda example: f"```python\n{example[0].rstrip()}\n```\n", text)
