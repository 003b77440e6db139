"""A fast provider greets the broker by TLS under a name of its own, and hangs up."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "connections"
ALSO = ("ports",)


def sabotage(product):
    append(
        product / "fogveil/broker/client.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        import contextlib
        import socket
        import ssl

        _before_hello_and_no_more = BrokerClient.__aenter__

        async def _enter(self):
            path = self._address.socket
            if _own and _own["ipt"] > 3e8:
                family = socket.AF_UNIX if path else socket.AF_INET
                with socket.socket(family) as greeting:
                    greeting.connect(path or (self._address.host, self._address.port))
                    ours = ssl.MemoryBIO()
                    with contextlib.suppress(ssl.SSLWantReadError):
                        session = self._context.wrap_bio(ssl.MemoryBIO(), ours, False, "fast.fogveil")
                        session.do_handshake()
                    greeting.sendall(ours.read())
            return await _before_hello_and_no_more(self)

        BrokerClient.__aenter__ = _enter
        """,
    )
