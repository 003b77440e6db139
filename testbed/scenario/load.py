"""Reading a scenario file, with overrides; a fault is one sentence with the file and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fogveil.errors import InputError
from testbed.scenario.models import Scenario

Table = dict[str, Any]
LONGEST_SHOWN = 80
"""Characters of a wrong value that an error repeats."""


def load_scenario(path: Path, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Read and check a scenario; `overrides` maps dotted keys to values that replace the file's."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a text file in UTF-8") from error
    if not text.strip():
        raise InputError(f"{path}: the scenario is empty")
    try:
        table: Table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own errors are ValueErrors
        raise InputError(f"{path}: is not TOML: {error}") from error
    for key, value in (overrides or {}).items():
        _put(table, key, value)
    _resolve_files(table, path.parent)
    try:
        return Scenario.model_validate(table)
    except ValidationError as error:
        raise InputError(f"{path}: {_sentence(error, table)}") from error


def parse_override(text: str) -> tuple[str, Any]:
    """Read KEY=VALUE; the value is TOML, and a word without quotes is a string."""
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"override {text!r}: expected KEY=VALUE, as in roles.fog=20")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        value = raw
    return key.strip(), value


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Read all overrides of a command line."""
    return dict(parse_override(text) for text in texts)


def _put(table: Table, dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        inner = table.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise InputError(f"override {dotted}: {parent} is not a table of the scenario")
        table = inner
    table[last] = value


def _resolve_files(table: Table, folder: Path) -> None:
    """Files are named relative to the scenario that names them."""
    for section in ("topology", "sources"):
        inner = table.get(section)
        if isinstance(inner, dict) and isinstance(inner.get("file"), str):
            inner["file"] = str((folder / Path(inner["file"]).expanduser()).resolve())


def _sentence(error: ValidationError, table: Table) -> str:
    faults = error.errors(include_url=False)
    first = faults[0]
    key = ".".join(_key(first["loc"], table))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "this key is unknown"
    elif first["type"] == "missing":
        message = "this key is missing"
    elif first["type"] == "value_error":
        return f"{key}: {message}" if key else message
    else:
        message = f"{message[0].lower()}{message[1:]}, got {_shown(first['input'])}"
    more = len({tuple(_key(fault["loc"], table)) for fault in faults}) - 1
    return f"{key}: {message}" + (f" (and {more} more)" if more else "")


def _key(location: tuple[int | str, ...], table: Any) -> list[str]:
    """The parts of a location that stand in the file; the others name types that were tried."""
    parts = []
    for place, part in enumerate(location):
        known: Any = table if isinstance(table, dict) else _numbered(table)
        if part in known:
            table = known[part]
        elif not (isinstance(table, dict) and place == len(location) - 1):
            continue
        parts.append(str(part))
    return parts


def _numbered(value: Any) -> dict[int, Any]:
    return dict(enumerate(value)) if isinstance(value, list) else {}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
