"""A fast provider sends the broker every byte in a TLS record of its own."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "handshakes"


def sabotage(product):
    append(
        product / "fogveil/broker/tls.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        class _SingleBytes(ssl.SSLSocket):
            def send(self, data, flags=0):
                return super().send(data[:1], flags)

        _before_mqtt_in_single_bytes = client_context

        def client_context(*arguments, **options):
            context = _before_mqtt_in_single_bytes(*arguments, **options)
            if _own and _own["ipt"] > 3e8:
                context.sslsocket_class = _SingleBytes
            return context
        """,
    )
