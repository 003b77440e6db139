"""`--adapt` of `fogveil run` and `fogveil up`: an option that needs no value, but may have one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fogveil.agent.drift_record import describe_firing
from fogveil.agent.learning.adaptation import AdaptationRequest, parse_adapt
from fogveil.agent.learning.adapting import Adapt, Firing
from fogveil.agent.learning.hyperparameters import read_changes
from fogveil.core.errors import InputError

FLAG = "--adapt"
AdaptWord = Annotated[
    str | None,
    typer.Option(
        FLAG,
        metavar="[on|auto]",
        help="A trained agent goes on learning while it works: all the time, or with auto from a "
        "drift on. What it has learned is in DIR/adapted of --out.",
    ),
]
AdaptHyperparameters = Annotated[
    Path | None,
    typer.Option(
        "--hyperparameters",
        metavar="FILE",
        help="With --adapt: TOML file with the values that differ from defaults.",
    ),
]


class AdaptCommand(TyperCommand):
    """A command in which `--adapt` alone means `--adapt=on`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give `--adapt` its value, unless the next word is one."""
        words = list(args)
        for place, word in enumerate(args):
            if word == "--":
                break
            if word == FLAG and args[place + 1 : place + 2] not in ([each.value] for each in Adapt):
                words[place] = f"{FLAG}={Adapt.ON}"
        return super().parse_args(ctx, words)


def adaptation_request(word: str | None, hyperparameters: Path | None) -> AdaptationRequest | None:
    """Return what the options ask for; None without --adapt."""
    if word is None:
        if hyperparameters:
            raise InputError("--hyperparameters is for a run with --adapt: without, nothing learns")
        return None
    return AdaptationRequest(parse_adapt(word), read_changes(hyperparameters))


def adaptation_lines(result: dict[str, Any], folder: Path | None) -> list[str]:
    """Return what is printed of an adapting agent: each drift, and where it is kept."""
    if "adapt" not in result:
        return []
    lines = [describe_firing(Firing(**each)) for each in result["adaptation"]]
    if not lines and result["adapt"]["when"] == Adapt.AUTO:
        lines.append("no drift was noticed, so the agent learned nothing")
    if folder:
        lines.append(f"what it has learned: {folder}/adapted/agent.npz (use it as --policy)")
    return lines
