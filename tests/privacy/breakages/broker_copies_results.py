"""The built-in broker delivers results to the agent as well, under a topic that the agent has."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"
ALSO = ("output",)
BROKER = "builtin"


def sabotage(product):
    append(
        product / "fogveil/broker/builtin.py",
        """
        _before_broker_copies_results = Broker.relay

        def _relay(self, packet):
            _before_broker_copies_results(self, packet)
            run, found, _ = packet.topic.partition("/feedback/")
            if found:
                _before_broker_copies_results(self, packet._replace(topic=f"{run}/workload/results"))

        Broker.relay = _relay
        """,
    )
