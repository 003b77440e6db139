"""ProviderDone carries a field that the protocol does not have: the jobs served."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "messages"


def sabotage(product):
    replace(
        product / "fogveil/provider_node/process.py",
        "clock.send(provider_done=ProviderDone())",
        'clock.send(\n                            provider_done=ProviderDone.FromString(\n                                b"\\x08" + bytes((1 + len(self._core._senders) % 100,))\n                            )\n                        )',
    )
