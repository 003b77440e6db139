"""The command line `fogveil`."""

import os

# What matters of gRPC's is said in a sentence of ours; it reads this when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from testbed.cli.app import main

__all__ = ["main"]
