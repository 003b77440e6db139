"""A provider publishes its speed under a topic that nobody has."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_mqtt_extra_topic = ProviderProcess._begin

        async def _begin(self, begin):
            await _before_mqtt_extra_topic(self, begin)
            config, topics, name = self._config, self._topics, self._settings.name
            self.relay.publish(topics.aggregate(name) + "/speed", b"%d" % config.ipt)

        ProviderProcess._begin = _begin
        """,
    )
