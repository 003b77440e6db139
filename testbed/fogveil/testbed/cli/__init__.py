"""The command line `fogveil`."""

import os
import sys

# gRPC reads this when it is loaded; what matters of its errors is in our own messages.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def main() -> None:
    """Run the command."""
    try:  # loading takes half a second, in which Ctrl-C may be pressed
        from fogveil.testbed.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


__all__ = ["main"]
