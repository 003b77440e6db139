"""A scenario: one TOML file that describes everything, checked before anything runs."""

from testbed.scenario.load import load_scenario
from testbed.scenario.models import Scenario

__all__ = ["Scenario", "load_scenario"]
