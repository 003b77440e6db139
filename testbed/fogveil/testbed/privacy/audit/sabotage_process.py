"""`python -m fogveil.testbed.privacy.audit.sabotage_process`: runs somebody's challenge on a copy.

The auditor holds all secrets, so it never runs a challenge's code. This process does, as a user
that owns the copy of the product and nothing else, where the system has one. The request comes as
JSON on standard input; why the challenge cannot be used, if so, goes as JSON to standard output.
"""

from __future__ import annotations

import compileall
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fogveil.agent.policy_errors import describe_error
from fogveil.protocol.privileges import become_user
from fogveil.testbed.privacy.audit.sabotage import SabotageError


def main() -> None:
    """Answer the request on standard input."""
    answer_file = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that what the challenge prints is no part of the answer
    request = json.load(sys.stdin)
    if request["user"] is not None:
        become_user(request["user"], Path(request["product"]))
    answer_file.write(json.dumps({"refused": apply_challenge(request)}) + "\n")
    answer_file.flush()
    os._exit(0)  # ends threads that the challenge may have started


def apply_challenge(request: dict[str, Any]) -> str | None:
    """Run `sabotage` of a challenge's source on the product; return why it cannot be used."""
    module = ModuleType("_challenge")
    module.__file__ = request["file"]
    product = Path(request["product"])
    try:
        exec(compile(request["source"], request["file"], "exec"), module.__dict__)  # noqa: S102
        sabotage = getattr(module, "sabotage", None)
        if not callable(sabotage):
            return "it defines no function sabotage(product)"
        sabotage(product)
    except SabotageError as error:
        return str(error).replace(f"{product}/", "")
    except (Exception, SystemExit) as error:  # noqa: BLE001 (somebody's code raises anything)
        return describe_error(error)
    # Once here, in place of once in every participant.
    if not compileall.compile_dir(str(product), quiet=2):
        return "it leaves files in the product that are not Python"
    return None


if __name__ == "__main__":
    main()
