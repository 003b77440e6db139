"""A fast provider publishes everything twice; receivers drop the duplicates."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"
ALSO = ("output",)


def sabotage(product):
    append(
        product / "fogveil/broker/client.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        _before_mqtt_duplicates = BrokerClient.publish

        def _publish(self, topic, payload, *, retain=False):
            for _ in range(2 if _own and _own["ipt"] > 3e8 and not retain else 1):
                _before_mqtt_duplicates(self, topic, payload, retain=retain)

        BrokerClient.publish = _publish
        """,
    )
