"""The random end of a provider's MQTT client id is a digest of its speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "freshness"
RUNS = 2


def sabotage(product):
    append(
        product / "fogveil/protocol/settings.py",
        """
        import hashlib

        _before_client_id_fixed = Settings.mqtt_client_id

        def _client_id(self):
            usual, own = _before_client_id_fixed(self), getattr(self, "provider", None)
            if own is None:
                return usual
            return usual[:-16] + hashlib.sha256(str(own.ipt).encode()).hexdigest()[:16]

        Settings.mqtt_client_id = _client_id
        """,
    )
