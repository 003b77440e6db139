"""`python -m fogveil.protocol.product_copy`: runs a program of ours from a copy of the product.

A challenge to the audit changes a copy of the participants' packages. This module, which is the
installed one, drops the privileges of the process before any code of the copy runs: the copy is
somebody's code, and never runs as root.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from fogveil.protocol.privileges import become_user

NAMESPACE = "fogveil"
SAME_USER = "-"
"""In the place of a user id: the process stays who it is, where it is."""


def module_command(
    module: str, product: Path | None = None, user: int | None = None, folder: Path | None = None
) -> list[str]:
    """Return the command that runs a module of the installation, or of the copy in `product`.

    That of a copy becomes `user` first, in `folder`; arguments follow.
    """
    # -P: do not import from the user's current folder, which may have a `fogveil` as well.
    return [sys.executable, "-P", "-m", *module_arguments(module, product, user, folder)]


def module_arguments(
    module: str, product: Path | None = None, user: int | None = None, folder: Path | None = None
) -> list[str]:
    """Return what follows `python -m` in that command; in an enclosure the user has changed."""
    if product is None:
        return [module]
    who = SAME_USER if user is None else str(user)
    return [__name__, str(product), who, str(folder or "."), module]


def main() -> None:
    """Become the user, forget the installed modules, and run that of the copy."""
    product, user, folder, module, *arguments = sys.argv[1:]
    if user != SAME_USER:
        become_user(int(user), Path(folder))
    for name in [*sys.modules]:
        if name.partition(".")[0] == NAMESPACE:
            del sys.modules[name]
    sys.path.insert(0, product)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
