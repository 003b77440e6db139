"""Scenario files: found, read with overrides and checked; an error names the file and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fogveil.core.errors import InputError
from fogveil.core.validation_text import abbreviate, describe_fault
from fogveil.testbed.scenario.models import Scenario
from fogveil.testbed.scenario.tables import ScenarioTable

Table = dict[str, Any]
SHIPPED = Path(__file__).parent / "shipped"
files_read: set[Path] = set()
"""Files of scenarios that this process has read: they hold secrets, and participants get none."""
ALIASES = {"rate": "sources.scale", "fog.count": "roles.fog", "clusters.count": "roles.clusters"}
"""Short names of keys, for overrides and sweeps."""


def shipped_scenarios() -> dict[str, Path]:
    """Return the scenarios that come with the package, by name."""
    folder = SHIPPED.resolve()
    paths = [*sorted(folder.glob("*.toml")), *sorted(folder.glob("*/*.toml"))]
    return {path.stem: path for path in paths}


def find_scenario(spec: Path | str) -> Path:
    """Return the file of a scenario; a bare name is a shipped one, unless there is such a file."""
    path = Path(spec)
    if path.is_file() or len(path.parts) != 1 or path.suffix:
        return path
    shipped = shipped_scenarios()
    if path.name not in shipped:
        raise InputError(
            f"no scenario is called {path.name!r}: expected one of {', '.join(shipped)}, "
            "or the path of a TOML file"
        )
    return shipped[path.name]


def load_scenario(spec: Path | str | Table, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Read and check a scenario by its file or shipped name, or as the content of one.

    `overrides` maps dotted keys to values that replace the file's; an item of a list is named by
    its number from 0, or by its name, as in `applications.light.instructions`.
    """
    if isinstance(spec, dict):
        path, table = Path("scenario"), plain_values(spec)
    elif not isinstance(spec, str | Path):
        raise InputError(f"scenario {spec!r}: expected a file, a shipped name or a dictionary")
    else:
        path = find_scenario(spec)
        table = _read_table(path)
        files_read.add(path.resolve())
    overrides = overrides or {}
    for key, value in overrides.items():
        if not isinstance(key, str):
            raise InputError(f"override {key!r}: expected a key of the scenario, such as roles.fog")
        _override(table, key, plain_values(value))
    _resolve_files(table, path.parent)
    try:
        return Scenario.model_validate(table)
    except ValidationError as error:
        key, message = _describe(error, table)
        names = [ALIASES.get(name, name) for name in overrides]
        overridden = any(key == name or key.startswith(f"{name}.") for name in names)
        where = "override" if overridden else f"{path}:"
        raise InputError(f"{where} {key}: {message}" if key else f"{where} {message}") from error


def _read_table(path: Path) -> Table:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        shipped = f"; to use the shipped one, write {path.stem}"
        hint = shipped if path.stem in shipped_scenarios() else ""
        raise InputError(f"{path}: cannot be read: {error.strerror}{hint}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a text file in UTF-8") from error
    if not text.strip():
        raise InputError(f"{path}: the scenario is empty; copy a shipped one and edit it")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own errors are ValueErrors
        raise InputError(f"{path}: is not TOML: {error}") from error


def parse_override(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE; the value is TOML, and a word without quotes is a string."""
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"override {text!r}: expected KEY=VALUE, as in roles.fog=20")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except (ValueError, RecursionError):
        value = raw
    return key.strip(), value


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Parse all overrides of a command line."""
    return dict(parse_override(text) for text in texts)


def plain_values(value: Any) -> Any:
    """Return a copy in plain types, without those of numpy: what a TOML file would hold."""
    if isinstance(value, dict):
        return {key: plain_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(each) for each in value]
    tolist = getattr(value, "tolist", None)
    return tolist() if callable(tolist) else value


def _override(table: Table, dotted: str, value: Any) -> None:
    *parents, last = ALIASES.get(dotted, dotted).split(".")
    place: Any = table
    for parent in parents:
        if isinstance(place, list):
            place = place[_place_in(place, parent, dotted)]
        else:
            place = place.setdefault(parent, {})
        if not isinstance(place, dict | list):
            raise InputError(f"override {dotted}: {parent} is not a table of the scenario")
    if isinstance(place, list):
        place[_place_in(place, last, dotted)] = value
    else:
        place[last] = value


def _place_in(items: list[Any], word: str, dotted: str) -> int:
    """Return the place of a list's item: by its number from 0, or by the name in its table."""
    names = [item.get("name") for item in items if isinstance(item, dict)]
    if word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < len(items):
        return int(word)
    named = f" or one of {', '.join(map(str, names))}" if names else ""
    raise InputError(
        f"override {dotted}: the list has no item {word}: expected 0 to {len(items) - 1}{named}"
    )


def _resolve_files(table: Table, folder: Path) -> None:
    """Make file names absolute; they are relative to the scenario that contains them."""
    for section in ("topology", "sources"):
        inner = table.get(section)
        if isinstance(inner, dict) and isinstance(inner.get("file"), str):
            path = (folder / Path(inner["file"]).expanduser()).resolve()
            files_read.add(path)
            inner["file"] = str(path)


def _describe(error: ValidationError, table: Table) -> tuple[str, str]:
    """Return the key of the first fault, and what is wrong with it."""
    faults = error.errors(include_url=False)
    keys = [tuple(_key(fault, table)) for fault in faults]
    forms = [
        fault for fault in faults if _value_place(fault, table) == _value_place(faults[0], table)
    ]
    forms = _meant_forms(forms, table)
    first = forms[0]
    key = ".".join(_key(first, table))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return key, message
    if first["type"] == "extra_forbidden":
        message = f"this key is unknown{_suggestion(key)}"
    elif first["type"] == "missing":
        item = isinstance(first["loc"][-1], int)
        message = "an item is missing in this list" if item else "this key is missing"
    else:
        said = dict.fromkeys(
            describe_fault(form).partition(", got ")[0]
            for form in forms
            if _key(form, table) == _key(first, table)
        )
        expected = " or ".join(sentence.removeprefix("expected ") for sentence in said)
        message = describe_fault(first)
        if len(said) > 1:
            message = f"expected {expected}, got {abbreviate(first['input'])}"
    more = len({key[: len(keys[0])] for key in keys} - {keys[0]})
    return key, message + (f" (and {more} more)" if more else "")


def describe_first_fault(error: ValidationError, table: Table) -> str:
    """Return the first fault of a table in words: its key, and what is wrong with it."""
    return ": ".join(filter(None, _describe(error, table)))


NOT_TABLES = ("float_type", "int_type", "list_type", "string_type", "bool_type", "tuple_type")
NOT_LISTS = ("float_type", "int_type", "string_type", "bool_type", "model_type")
NOT_NUMBERS = ("list_type", "tuple_type", "model_type", "model_attributes_type")


def _meant_forms(forms: list[ErrorDetails], table: Table) -> list[ErrorDetails]:
    """Return the faults of the form that was meant, for a value that may have several forms.

    pydantic tries a number, a list and every kind of table, and reports what is wrong with each.
    """

    def is_meant(fault: ErrorDetails) -> bool:
        value = fault["input"]
        if isinstance(value, dict):
            return fault["type"] not in NOT_TABLES
        if isinstance(value, list):
            return fault["type"] not in NOT_LISTS
        return not isinstance(value, int | float) or fault["type"] not in NOT_NUMBERS

    meant = [fault for fault in forms if is_meant(fault)] or forms
    branches: dict[Any, list[ErrorDetails]] = {}
    for fault in meant:
        place = len(_value_place(fault, table))
        branches.setdefault(fault["loc"][place : place + 1], []).append(fault)
    if not any(fault["type"] in ("missing", "extra_forbidden") for fault in meant):
        return meant

    def strangeness(branch: list[ErrorDetails]) -> tuple[int, int]:
        types = [fault["type"] for fault in branch]
        return types.count("extra_forbidden"), types.count("missing")

    closest = min(branches.values(), key=strangeness)
    return sorted(closest, key=lambda fault: fault["type"] != "extra_forbidden")


def _value_place(fault: ErrorDetails, table: Any) -> tuple[int | str, ...]:
    """Return the location up to where pydantic begins to name the types that it tried."""
    place: list[int | str] = []
    for part in fault["loc"]:
        known: Any = table if isinstance(table, dict) else _numbered(table)
        if part not in known:
            break
        table = known[part]
        place.append(part)
    return tuple(place)


def _suggestion(key: str) -> str:
    models = list(ScenarioTable.__subclasses__())
    for model in models:
        models += model.__subclasses__()  # those of sweeps are derived once more
    known = {name for model in models for name in model.model_fields}
    name = key.rpartition(".")[2]
    similar = get_close_matches(name, known - {name}, 1)
    return f"; did you mean {similar[0]}?" if similar else ""


def _key(fault: ErrorDetails, table: Any) -> list[str]:
    """The parts of a location that are keys of the file; pydantic adds the types it tried."""
    parts = []
    location = fault["loc"]
    for place, part in enumerate(location):
        known: Any = table if isinstance(table, dict) else _numbered(table)
        if part in known:
            table = known[part]
        elif fault["type"] != "missing" or place < len(location) - 1 or isinstance(part, int):
            continue
        parts.append(str(part))
    return parts


def _numbered(value: Any) -> dict[int, Any]:
    return dict(enumerate(value)) if isinstance(value, list) else {}
