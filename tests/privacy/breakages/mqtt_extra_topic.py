"""A provider publishes its speed under a topic that nobody has."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_mqtt_extra_topic = ProviderProcess.announce_key

        def _announce(self):
            _before_mqtt_extra_topic(self)
            config, topics, name = self._config, self._topics, self._settings.name
            self.relay.publish(topics.aggregate(name) + "/speed", b"%d" % config.ipt)

        ProviderProcess.announce_key = _announce
        """,
    )
