"""What every participant must agree on: disclosure levels, keyed randomness, errors."""

__version__ = "0.1.0"
