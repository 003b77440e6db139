"""The command line `fogveil`."""

import os
import sys

# What matters of gRPC's is said in a sentence of ours; it reads this when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def main() -> None:
    """Run the command."""
    try:  # loading takes half a second, in which somebody may think better of it
        from testbed.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


__all__ = ["main"]
