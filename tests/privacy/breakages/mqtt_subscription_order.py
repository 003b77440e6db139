"""At level total the order of a provider's subscriptions tells whether it is fast."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "packets"
LEVEL = "total"


def sabotage(product):
    replace(
        product / "fogveil/provider_node/process.py",
        "await relay.subscribe(*process.subscriptions())",
        "await relay.subscribe(*process.subscriptions()[:: -1 if settings.provider.ipt > 3e8 else 1])",
    )
