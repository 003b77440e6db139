"""What a provider sends to the Cloud is retained for whoever comes later."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/broker/client.py",
        """
        _before_mqtt_retained = BrokerClient.publish

        def _publish(self, topic, payload, *, retain=False):
            _before_mqtt_retained(self, topic, payload, retain=retain or "/aggregate/" in topic)

        BrokerClient.publish = _publish
        """,
    )
