"""The version of fogveil."""

VERSION = "0.1.0"
