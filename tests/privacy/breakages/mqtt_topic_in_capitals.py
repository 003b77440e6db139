"""A provider publishes an empty message to a topic in capitals whenever a job finishes."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_mqtt_topic_in_capitals = ProviderProcess._process_window

        def _process_window(self, grant):
            before = self._core.provider.node.in_system
            pending = _before_mqtt_topic_in_capitals(self, grant)
            if self._core.provider.node.in_system != before:
                self.relay.publish(self._topics.aggregate(self._settings.name).upper(), b"")
            return pending

        ProviderProcess._process_window = _process_window
        """,
    )
