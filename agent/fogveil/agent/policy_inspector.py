"""`python -m fogveil.agent.policy_inspector`: runs a user's policy file to read what it declares.

The launcher holds all secrets, so it never runs a user's code. This process does, enclosed in
namespaces or as a user without any rights where the system allows it. The request comes as JSON on
standard input; the
policy's declarations, or why it cannot be used, go as JSON to standard output.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import fogveil.agent.policies as policies
from fogveil.agent.policy import AgentView
from fogveil.agent.policy_files import PolicyFiles
from fogveil.core.errors import InputError
from fogveil.core.plain import from_plain
from fogveil.protocol.privileges import become_user


def main() -> None:
    """Answer the request on standard input."""
    answer_file = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that what the policy prints is no part of the answer
    answer = inspect_policy(json.load(sys.stdin))
    answer_file.write(json.dumps(answer) + "\n")
    answer_file.flush()
    os._exit(0)  # ends threads that the policy may have started


def inspect_policy(request: dict[str, Any]) -> dict[str, Any]:
    """Return what a policy declares, or the sentence that says why it cannot be used."""
    spec, view = request["spec"], from_plain(AgentView, request["view"])
    try:
        path, class_name = policies.parse_file_spec(spec)
        contents = tuple((name, bytes.fromhex(code)) for name, code in request["files"].items())
        if request["user"] is not None:
            become_user(request["user"], Path("/"))
        kind = policies.class_from_files(PolicyFiles(path, contents), class_name)
        policies.instantiate(spec, kind, view)
    except InputError as error:
        return {"refused": str(error), "frames": getattr(error, "__notes__", [])}
    return {
        "needs": kind.needs.word,
        "ahead": bool(kind.decides_ahead),
        "cloud": bool(kind.watches_cloud),
    }


if __name__ == "__main__":
    main()
