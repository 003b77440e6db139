"""Reference pages of keys: of a scenario file, and of a file of hyper-parameters.

Types, bounds and defaults come from the models' JSON schema, meanings from the docstrings that
follow the fields in their source.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel

from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.registry import AGENTS, find_agent
from fogveil.agent.learning.relearning import (
    ADAPTATION,
    AdaptationHyperparameters,
    transfer_hyperparameters,
)
from fogveil.testbed.scenario.models import Scenario

Schema = dict[str, Any]
ADDRESS = "#/$defs/"
HEADER = "| key | type and bounds | default | meaning |\n|---|---|---|---|"
SCENARIO = """# Scenario keys

Every key of a scenario file, generated from the code that reads it. A file is TOML; `--set
KEY=VALUE` replaces any key by its dotted path, as in `--set roles.fog=20`. An unknown key and a
value out of bounds are refused with one sentence that names the file and the key.
[Scenarios](../scenarios.md) explains how the parts belong together, [your own topology and
trace](../tutorials/own_topology.md) builds one.
"""
VALUES = """## Values as tables

Where a key takes a number, some also take one of these tables, such as
`bandwidth = { uniform = [50, 150] }`.
"""
HYPERPARAMETERS = """# Hyper-parameters

Every key of a file for `fogveil train --hyperparameters FILE.toml`, generated from the code that
reads it. The names are those of the paper's table. A key that is left out keeps its default.
"""
TRANSFER = """## A training that starts from an earlier one

`fogveil train --from FILE` takes the values of the training that made the file, but for these; here
as they follow from the paper's."""
ADAPTING = """## An agent at work

`fogveil run --adapt --hyperparameters FILE.toml` takes those of the agent's training, but for
these, and has some more for `--adapt=auto`."""


class KeyPage:
    """The tables of one model and of all models that its keys lead to."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._schema = model.model_json_schema()
        self._definitions: dict[str, Schema] = self._schema.get("$defs", {})
        self._models = _models_of(model.__module__)
        self._titles: dict[str, str] = {}
        """Heading of each model that has been met, as far as it is a table of the file."""
        self._values: list[str] = []
        """Models that stand where a number could."""

    def table(self, name: str, schema: Schema, path: str = "") -> str:
        """Return the keys of one model as a table."""
        required = schema.get("required", ())
        rows = [
            (
                f"`{key}`",
                self.kind(value, f"{path}{key}"),
                "**required**" if key in required else _default(value),
                self._meaning(name, key, value),
            )
            for key, value in schema["properties"].items()
            if "const" not in value
        ]
        return "\n".join([HEADER, *(f"| {' | '.join(row)} |" for row in rows)])

    def _meaning(self, model: str, key: str, value: Schema) -> str:
        for owner in self._models[model].__mro__:
            meanings = _field_docstrings(owner.__module__)
            if (owner.__name__, key) in meanings:
                return meanings[owner.__name__, key]
        for reference in _references(value):
            return _first_sentence(self._definitions[reference]["description"])
        where = self._models[model].__module__
        raise LookupError(f"{model}.{key} has no meaning: write a docstring below it in {where}")

    def kind(self, value: Schema, path: str) -> str:
        """Return what a value may be, with its bounds; tables become links to their headings."""
        if "$ref" in value:
            name = value["$ref"].removeprefix(ADDRESS)
            if "enum" in self._definitions[name]:
                return self.kind(self._definitions[name], path)
            title = self._titles.setdefault(name, f"`{path}`")
            return f"[table {title}](#{_anchor(title)})"
        choices = [each for each in value.get("anyOf", ()) if each.get("type") != "null"]
        if len(choices) > 1:
            for name in (reference for each in choices for reference in _references(each)):
                self._titles.setdefault(name, f"{{ {_first_key(self._definitions[name])} = … }}")
                if name not in self._values:
                    self._values.append(name)
        if choices:
            return ", or ".join(self.kind(each, path) for each in choices)
        if "oneOf" in value:
            kinds = value["discriminator"]["mapping"]
            for word, reference in kinds.items():
                self._titles[reference.removeprefix(ADDRESS)] = f'`{path}`, kind = "{word}"'
            titles = (
                (word, self._titles[ref.removeprefix(ADDRESS)]) for word, ref in kinds.items()
            )
            links = (f"[`{word}`](#{_anchor(title)})" for word, title in titles)
            return f"table of a `kind`: {', '.join(links)}"
        if "enum" in value:
            return _listed([f"`{word}`" for word in value["enum"]])
        if value.get("type") == "array":
            return self._list(value, path)
        if value.get("type") == "object":
            return "table"
        if value.get("type") == "string":
            return "name: letters, digits, `_`, `.`, `-`" if "pattern" in value else "text"
        return _number(value)

    def _list(self, value: Schema, path: str) -> str:
        if "prefixItems" in value:
            first = self.kind(value["prefixItems"][0], path)
            return f"list of {len(value['prefixItems'])}: {first}"
        least = f", at least {value['minItems']}" if value.get("minItems") else ""
        return f"list of: {self.kind(value['items'], path)}{least}"

    def sections(self) -> Iterator[str]:
        """Return a heading and a table for each model, in the order in which keys lead to them."""
        yield self.table(self._schema["title"], self._schema)
        yield from self._tables(list(self._titles))
        if self._values:
            yield VALUES
        yield from (self._section(name, 3) for name in self._values)

    def _tables(self, names: list[str]) -> Iterator[str]:
        """Return the sections of some models, each followed by those that its keys lead to."""
        for name in names:
            if name in self._values:
                continue
            known = set(self._titles)
            yield self._section(name, 2)
            yield from self._tables([each for each in self._titles if each not in known])

    def _section(self, name: str, depth: int) -> str:
        schema, title = self._definitions[name], self._titles[name]
        path = title.split("`")[1] + "." if "`" in title else ""
        heading = f"{'#' * depth} {title} {{ #{_anchor(title)} }}"
        return f"{heading}\n\n{_joined(schema['description'])}\n\n{self.table(name, schema, path)}"


def scenario_page() -> str:
    """Return the reference of scenario keys."""
    return "\n\n".join([SCENARIO, *KeyPage(Scenario).sections()])


def hyperparameters_page() -> str:
    """Return the reference of hyper-parameters, with what each agent changes."""
    page = KeyPage(Hyperparameters)
    common = Hyperparameters()
    rows = []
    for agent in AGENTS:
        own = find_agent(agent).defaults
        changed = [
            f"`{key} = {_toml(value)}`"
            for key, value in own.model_dump().items()
            if value != getattr(common, key)
        ]
        rows.append(f"| `{agent}` | {', '.join(changed) or 'none'} |")
    agents = "\n".join(["| agent | defaults of its own |", "|---|---|", *rows])
    parts = [*page.sections(), "## Agents", agents, *_relearning_sections()]
    return "\n\n".join([HYPERPARAMETERS, *parts])


def _relearning_sections() -> Iterator[str]:
    """Return what learning from a trained agent does otherwise: transfers, and agents at work."""
    earlier = Hyperparameters()
    later = transfer_hyperparameters(earlier, replay=False)
    rows = [
        f"| `{key}` | `{_toml(getattr(earlier, key))}` | `{_toml(value)}` |"
        for key, value in later.model_dump().items()
        if value != getattr(earlier, key)
    ]
    yield TRANSFER
    yield "\n".join(["| key | earlier training | `--from` |", "|---|---|---|", *rows])
    yield ADAPTING
    yield "\n".join(["| key | default |", "|---|---|", *(
        f"| `{key}` | `{_toml(value)}` |" for key, value in ADAPTATION.items()
    )])  # fmt: skip
    page = KeyPage(AdaptationHyperparameters)
    properties = AdaptationHyperparameters.model_json_schema()["properties"]
    own = {key: properties[key] for key in properties if key not in Hyperparameters.model_fields}
    yield page.table("AdaptationHyperparameters", {"properties": own})


def _models_of(module: str) -> dict[str, type[BaseModel]]:
    """Return the models of a module by name, those that it imports included."""
    return {
        name: value
        for imported in (module, *_imported_from(module))
        for name, value in vars(sys.modules[imported]).items()
        if inspect.isclass(value) and issubclass(value, BaseModel)
    }


def _imported_from(module: str) -> set[str]:
    return {
        node.module
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
        if isinstance(node, ast.ImportFrom) and node.module in sys.modules
    }


@cache
def _field_docstrings(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings below annotated fields of a module, by class and field."""
    found: dict[tuple[str, str], str] = {}
    if module == "builtins":
        return found
    for owner in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if not isinstance(owner, ast.ClassDef):
            continue
        for field, after in zip(owner.body, owner.body[1:], strict=False):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[owner.name, name] = _joined(text)
    return found


def _references(value: Schema) -> Iterator[str]:
    """Return the names of the models in a value's schema."""
    if "$ref" in value:
        yield value["$ref"].removeprefix(ADDRESS)
    for inner in (*value.get("anyOf", ()), *value.get("oneOf", ()), value.get("items")):
        if inner:
            yield from _references(inner)


def _number(value: Schema) -> str:
    bounds = {
        "minimum": "≥ {}",
        "exclusiveMinimum": "> {}",
        "maximum": "≤ {}",
        "exclusiveMaximum": "< {}",
    }
    said = [text.format(f"{value[key]:,}") for key, text in bounds.items() if key in value]
    return " ".join([value.get("type", "any"), ", ".join(said)]).strip()


def _default(value: Schema) -> str:
    default = value.get("default", ...)
    if default is ... and value.get("type") == "array":
        return "none"
    if default is ... or isinstance(default, dict):
        return "its defaults"
    return "none" if default is None else f"`{_toml(default)}`"


def _toml(value: Any) -> str:
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


def _listed(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _anchor(title: str) -> str:
    return "-".join(word for word in "".join(c if c.isalnum() else " " for c in title).split())


def _first_key(schema: Schema) -> str:
    return str(next(iter(schema["properties"])))


def _first_sentence(text: str) -> str:
    return f"{_joined(text).split('. ')[0].rstrip('.')}."


def _joined(text: str) -> str:
    return " ".join(text.split())
