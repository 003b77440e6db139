"""What pydantic finds wrong with a user's value, in words that need no knowledge of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LONGEST_VALUE = 80
"""Characters of a wrong value that an error repeats."""

Context = Mapping[str, Any]
SENTENCES: dict[str, Callable[[Context], str]] = {
    "bool_type": lambda _: "expected true or false",
    "dict_type": lambda _: "expected a table with keys",
    "enum": lambda context: f"expected one of {_words(context['expected'])}",
    "finite_number": lambda _: "expected a finite number",
    "float_parsing": lambda _: "expected a number",
    "float_type": lambda _: "expected a number",
    "greater_than": lambda context: f"expected a number greater than {context['gt']:g}",
    "greater_than_equal": lambda context: f"expected {context['ge']:g} or more",
    "int_from_float": lambda _: "expected a whole number",
    "int_parsing": lambda _: "expected a whole number",
    "int_type": lambda _: "expected a whole number",
    "less_than": lambda context: f"expected a number less than {context['lt']:g}",
    "less_than_equal": lambda context: f"expected {context['le']:g} or less",
    "list_type": lambda _: "expected a list",
    "literal_error": lambda context: f"expected one of {_words(context['expected'])}",
    "model_attributes_type": lambda _: "expected a table with keys",
    "model_type": lambda _: "expected a table with keys",
    "string_pattern_mismatch": lambda _: (
        "expected a name of letters, digits, '_', '.' and '-' that begins with a letter or digit"
    ),
    "string_too_long": lambda context: f"expected at most {context['max_length']} characters",
    "string_type": lambda _: "expected a text in quotes",
    "too_long": lambda context: f"expected at most {context['max_length']} items",
    "too_short": lambda context: f"expected at least {context['min_length']} items",
    "tuple_type": lambda _: "expected a list",
    "union_tag_invalid": lambda context: f"expected kind to be one of {context['expected_tags']}",
    "union_tag_not_found": lambda _: "the key kind is missing, which says what the table describes",
}
"""By pydantic's types of faults."""


def describe_fault(fault: Mapping[str, Any]) -> str:
    """Return what was expected and what is there, for one of pydantic's `errors()`."""
    say = SENTENCES.get(fault["type"])
    if say is None:
        message = str(fault["msg"]).removeprefix("Value error, ")
        return f"{message[0].lower()}{message[1:]}, got {abbreviate(fault['input'])}"
    sentence = say(fault.get("ctx", {}))
    if fault["type"] == "union_tag_not_found":
        return sentence
    if fault["type"] == "union_tag_invalid":
        return f"{sentence}, got {abbreviate(fault['ctx']['tag'])}"
    return f"{sentence}, got {abbreviate(fault['input'])}"


def abbreviate(value: Any) -> str:
    """Return a value as a user would write it, bounded."""
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _words(expected: str) -> str:
    return expected.replace(" or ", ", ")
