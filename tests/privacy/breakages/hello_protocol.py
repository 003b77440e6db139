"""The protocol's version that a provider names has its memory above the low bits."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "messages"


def sabotage(product):
    replace(
        product / "fogveil/protocol/clock_client.py",
        "protocol=PROTOCOL,",
        "protocol=_version(settings),",
    )
    append(
        product / "fogveil/protocol/clock_client.py",
        """
        def _version(settings):
            own = getattr(settings, "provider", None)
            return PROTOCOL + (int(own.ram) % 10**6 << 8 if own else 0)
        """,
    )
    replace(
        product / "fogveil/clock/process.py",
        "first.hello\n",
        "first.hello\n        hello.protocol %= 256\n",
    )
