"""The option --quiet, which every command that takes long has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from fogveil.testbed.cli.options import err

Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", help="Print results, warnings and errors alone: no steps, no progress."
    ),
]


def with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has the option --quiet as well."""

    @wraps(command)
    def quiet_command(*arguments: Any, quiet: bool, **options: Any) -> None:
        before, err.quiet = err.quiet, quiet
        try:
            command(*arguments, **options)
        finally:
            err.quiet = before

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet
    )
    parameters = [*signature.parameters.values(), option]
    quiet_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    quiet_command.__annotations__ = {each.name: each.annotation for each in parameters}
    return quiet_command
