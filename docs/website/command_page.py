"""The reference page of commands: every command with its arguments and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from fogveil.testbed.cli.app import app

HEADER = "| option | meaning | default |\n|---|---|---|"
INTRODUCTION = """# Commands

Every command with its options, generated from the code. `fogveil COMMAND --help` prints the same.

| exit code | when |
|---|---|
| 0 | success |
| 1 | a check failed: a promise, a comparison of run hashes |
| 2 | wrong input: one sentence says what, where, and what to do |
| 3 | a participant or the environment failed |
"""
DEFAULT = re.compile(r"\s*\[(default: (?P<value>[^\]]+)|required)\]\s*$")


def page() -> str:
    """Return the reference of all commands."""
    root: Any = typer.main.get_command(app)  # typer has its own copy of click, without types
    return "\n\n".join([INTRODUCTION, *_commands(root, "fogveil")])


def command_names() -> set[str]:
    """Return the names of all commands, as in `scenario show`."""
    found = re.findall(r"^## `fogveil (.+)`$", page(), re.MULTILINE)
    return set(found)


def _commands(group: Any, name: str) -> Iterator[str]:
    for word, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {word}")
        elif not command.hidden:
            yield _section(command, f"{name} {word}")


def _section(command: Any, name: str) -> str:
    context = command.context_class(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [row for parameter in command.params for row in _row(parameter, context)]
    table = "\n".join([HEADER, *rows]) if rows else "It takes no options."
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    return f"## `{name}`\n\n{text}\n\n```\n{usage}\n```\n\n{table}"


def _row(parameter: Any, context: Any) -> Iterator[str]:
    record = parameter.get_help_record(context)
    if record is None or parameter.name == "help":
        return
    written, meaning = record
    default = DEFAULT.search(meaning)
    value = "" if default is None else default["value"] or "**required**"
    meaning = DEFAULT.sub("", meaning)
    cells = (f"`{written.strip()}`", meaning, value)
    yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
