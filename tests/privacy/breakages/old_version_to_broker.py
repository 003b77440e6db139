"""A fast provider offers the broker an older version of TLS as well, which is not taken up."""

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

        _before_old_version_to_broker = client_context

        def client_context(*arguments, **options):
            context = _before_old_version_to_broker(*arguments, **options)
            if _own:
                if _own["ipt"] > 3e8:
                    context.minimum_version = ssl.TLSVersion.TLSv1_2
            return context
        """,
    )
