"""The command line `fogveil`."""

from testbed.cli.app import main

__all__ = ["main"]
