"""The name by which a provider greets the clock ends in its speed; the clock takes that off."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "messages"


def sabotage(product):
    replace(
        product / "fogveil/protocol/clock_client.py",
        "name=settings.name,",
        "name=_greeting(settings),",
    )
    append(
        product / "fogveil/protocol/clock_client.py",
        """
        def _greeting(settings):
            own = getattr(settings, "provider", None)
            return f"{settings.name}~{own.ipt:.0f}" if own else settings.name
        """,
    )
    replace(
        product / "fogveil/clock/process.py",
        "first.hello\n",
        'first.hello\n        hello.name = hello.name.partition("~")[0]\n',
    )
