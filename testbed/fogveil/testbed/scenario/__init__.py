"""Scenarios: one TOML file each, checked before anything runs, and the world it describes."""

from fogveil.testbed.scenario.load import load_scenario
from fogveil.testbed.scenario.models import Scenario

__all__ = ["Scenario", "load_scenario"]
