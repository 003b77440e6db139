"""A provider gives the broker a user name that is its speed."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "packets"


def sabotage(product):
    replace(
        product / "fogveil/broker/client.py",
        "username=self._address.user,",
        "username=self._address.user or _name(),",
    )
    append(
        product / "fogveil/broker/client.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        def _name():
            return f"{_own['ipt']:.0f}" if _own else None
        """,
    )
