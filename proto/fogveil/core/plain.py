"""Typed values as plain ones (what JSON holds) and back, checked against their types."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import dacite

from fogveil.core.disclosure import CountKind, Level

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Return a dataclass as dictionaries, lists, texts and numbers; levels by their names."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(asdict(value))
    if isinstance(value, Level):
        return value.word
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {key: to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    return value


def from_plain(kind: type[T], plain: Any) -> T:
    """Make a dataclass of its plain form; ValueError says which key is wrong and why.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Link:
    ...     ends: tuple[str, ...]
    ...     delay: float
    >>> from_plain(Link, {"ends": ["a", "b"], "delay": 2})
    Link(ends=('a', 'b'), delay=2.0)
    >>> from_plain(Link, {"ends": ["a", "b"], "delay": "long"})
    Traceback (most recent call last):
    ValueError: delay: expected float, got 'long'
    """
    if not isinstance(plain, dict):
        raise ValueError(f"expected a table of keys, got {plain!r}")  # noqa: TRY004 (a bad file)
    try:
        return dacite.from_dict(kind, _tuples(plain), CONFIG)
    except dacite.WrongTypeError as error:
        expected = getattr(error.field_type, "__name__", error.field_type)
        raise ValueError(f"{error.field_path}: expected {expected}, got {error.value!r}") from error
    except dacite.DaciteError as error:
        raise ValueError(str(error)) from error


def _tuples(value: Any) -> Any:
    """Return a value with tuples for JSON's lists: frozen dataclasses hold no lists."""
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return tuple(_tuples(inner) for inner in value)
    return value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _level(word: Any) -> Any:
    names = {level.word: level for level in Level}
    return names.get(word, word) if isinstance(word, str) else word


def _count_kind(word: Any) -> Any:
    return CountKind(word) if word in list(CountKind) else word


# A hook leaves what it cannot convert to the check of types, which names the key.
CONFIG = dacite.Config(
    strict=True, type_hooks={float: _number, Level: _level, CountKind: _count_kind}
)
