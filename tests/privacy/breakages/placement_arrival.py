"""The agent tells each provider the sum of all counts in the last digits of an arrival."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"
ALSO = ("records",)


def sabotage(product):
    append(
        product / "fogveil/agent/core.py",
        """
        _before_placement_arrival = DecisionCore.place

        def _place(self, workload, disclosed):
            node, placement = _before_placement_arrival(self, workload, disclosed)
            placement.arrival += 1e-9 * (1 + sum(disclosed.counts)) if disclosed else 0.0
            return node, placement

        DecisionCore.place = _place
        """,
    )
