"""What a fast provider publishes has quality of service 1, not 0."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "packets"
ALSO = ("deliveries",)


def sabotage(product):
    replace(
        product / "fogveil/broker/paho_transport.py",
        "self._paho.publish(topic, payload, QOS, retain)",
        "self._paho.publish(topic, payload, 1 if _fast() else QOS, retain)",
    )
    append(
        product / "fogveil/broker/paho_transport.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        def _fast():
            return _own is not None and _own["ipt"] > 3e8
        """,
    )
