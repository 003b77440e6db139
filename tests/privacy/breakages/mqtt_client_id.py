"""The random part of a provider's MQTT client id is its speed in hexadecimal."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "secrets"


def sabotage(product):
    append(
        product / "fogveil/protocol/settings.py",
        """
        def _mqtt_client_id(self):
            own = getattr(self, "provider", None)
            tail = f"{int(own.ipt):016x}" if own else secrets.token_hex(8)
            return f"{self.run}-{self.name}-{tail}"

        Settings.mqtt_client_id = _mqtt_client_id
        """,
    )
