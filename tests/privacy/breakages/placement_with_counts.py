"""The agent tells each provider the others' counts, in a demand that nobody reads."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/agent/core.py",
        """
        _before_placement_with_counts = DecisionCore.place

        def _place(self, workload, disclosed):
            node, placement = _before_placement_with_counts(self, workload, disclosed)
            placement.demand = 1.0 + sum(disclosed.counts) if disclosed else 1.0
            return node, placement

        DecisionCore.place = _place
        """,
    )
