"""What somebody's policy says of itself: found out by `python -m agent.declaring`.

Whoever launches a testbed holds all secrets, and so runs nobody else's code: this process does, as
a user to whom nothing belongs, where there is one. What to load comes as JSON on standard input;
what the policy declares, or why it cannot be used, goes as JSON to standard output.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import agent.policies as policies
from agent.process import agent_view
from fogveil.errors import InputError
from fogveil.users import become


def main() -> None:
    """Load the policy and tell what it declares."""
    answering = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the policy prints is no answer
    answer = find_out(json.load(sys.stdin))
    answering.write(json.dumps(answer) + "\n")
    answering.flush()
    os._exit(0)  # whatever the policy has started ends with us


def find_out(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a policy needs, or the sentence that says why it cannot be used."""
    spec, view = given["spec"], agent_view(given["view"])
    try:
        path, class_name = policies.code_of(spec)
        source = policies.read_source(path)
        policies.import_libraries(source)
        if given["user"] is not None:
            become(given["user"], Path("/"))
        kind = policies.from_source(source, path, class_name)
        policies.make(spec, kind, view)
    except InputError as error:
        return {"refused": str(error)}
    return {"needs": kind.needs.word, "ahead": bool(kind.decides_ahead)}


if __name__ == "__main__":
    main()
