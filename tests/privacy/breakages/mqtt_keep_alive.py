"""The keep-alive time that a provider asks the broker for is a digit of its speed."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "packets"


def sabotage(product):
    replace(
        product / "fogveil/broker/client.py",
        "keepalive=self._keepalive * KEEPALIVE_FACTOR,",
        "keepalive=self._keepalive * KEEPALIVE_FACTOR + _digit(),",
    )
    append(
        product / "fogveil/broker/client.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        def _digit():
            return 1 + int(_own["ipt"]) % 9 if _own else 0
        """,
    )
