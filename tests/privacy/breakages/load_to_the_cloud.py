"""Aggregates carry a field that the protocol does not have: the Fog provider's load, for the Cloud."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        r"""
        _before_load_to_the_cloud = ProviderCore.process_window

        def _window(self, grant):
            output = _before_load_to_the_cloud(self, grant)
            for message in output.aggregates:
                message.MergeFromString(b"\x78" + bytes((self.provider.node.in_system,)))
            return output

        ProviderCore.process_window = _window
        """,
    )
