"""A provider leaves the broker a will with its speed."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "packets"


def sabotage(product):
    replace(
        product / "fogveil/broker/client.py",
        "            clean_session=True,\n",
        "            clean_session=True,\n            will=_will(),\n",
    )
    append(
        product / "fogveil/broker/client.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        def _will():
            if not _own:
                return None
            return aiomqtt.Will("fogveil/v1/will", b"%d" % _own["ipt"])
        """,
    )
