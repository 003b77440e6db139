"""The agent's request to watch tells a provider, in an unknown field, whom else it watches."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "messages"


def sabotage(product):
    replace(
        product / "fogveil/agent/boundary_client.py",
        "QueueServiceStub(channel).Watch(WatchRequest(**place))",
        'QueueServiceStub(channel).Watch(WatchRequest.FromString(b"\\x18\\x05"))',
    )
