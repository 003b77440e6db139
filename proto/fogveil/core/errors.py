"""Errors that a person is meant to read: raised where they are understood, shown once."""

from __future__ import annotations


class FogveilError(Exception):
    """One sentence for the user, and the exit code that goes with it."""

    exit_code = 1


class InputError(FogveilError):
    """What the user gave (a file, a key, an option) is wrong."""

    exit_code = 2


class InfrastructureError(FogveilError):
    """A participant, a disk or another part of the environment failed."""

    exit_code = 3


class LostError(InfrastructureError):
    """Another participant is gone, or does not answer."""

    def __init__(self, who: str, sentence: str) -> None:
        super().__init__(sentence)
        self.who = who


class MisbehaviourError(LostError):
    """Another participant sent what the protocol does not allow; the sentence names it."""
