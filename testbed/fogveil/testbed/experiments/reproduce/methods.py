"""The methods that are compared: one table. Whoever adds a method adds a line here."""

from __future__ import annotations

import sys
from typing import NamedTuple

PAPER, STRESS = "paper", "stress"
VETO = 0.6
"""The veto on the criterion `service` of ELECTRE in `stress`, as a share of its range."""


class Method(NamedTuple):
    """A method of the page, and how it is run."""

    name: str
    group: str
    """One of `traditional`, `learned` (the paper's two kinds), `ours`, `informed`, `oracle`."""
    policy: str = ""
    """The shipped policy, if it is not called like the method."""
    trained: bool = False
    """Whether it runs agents that the plan trains, at the rate of their training."""
    veto: float | None = None
    """ELECTRE's veto on the criterion `service`, if it is not the scenario's."""
    scenarios: tuple[str, ...] = (PAPER, STRESS)
    most_seeds: int = sys.maxsize
    """Evaluation seeds at most, for a method whose runs take long."""


METHODS = (
    Method("random", "traditional"),
    Method("round-robin", "traditional"),
    Method("nearest", "traditional"),
    Method("fastest", "traditional"),
    Method("electre", "traditional"),
    Method("parl", "learned", trained=True),
    Method("plrl-edql", "learned", trained=True),
    Method("plrl-ql", "learned", trained=True),
    Method("plrl-ed", "learned", trained=True),
    Method("veil-total", "ours", most_seeds=5),
    Method("ci-setr", "ours"),
    Method("veil", "ours"),
    Method("electre with veto", "informed", "electre", veto=VETO, scenarios=(PAPER,)),
    Method("electre-queue", "informed"),
    Method("p2c", "informed"),
    Method("jsq", "informed"),
    Method("lwl", "informed"),
    Method("sed", "informed"),
    Method("setr", "oracle"),
)
PRIVACY_LACKING = ("plrl-ed", "plrl-edql")
"""Trained with what only level `full` discloses; they act on counts."""


def names_of(*groups: str) -> tuple[str, ...]:
    """Return the names of the methods of some groups, in the table's order.

    >>> names_of("oracle")
    ('setr',)
    """
    return tuple(method.name for method in METHODS if method.group in groups)


TRADITIONAL = names_of("traditional")
OF_THE_PAPER = names_of("traditional", "learned")
