"""The low bit of every count tells the agent whether the provider is serving a job."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "messages"
ALSO = ("deliveries", "records")


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        """
        _before_count_low_bit = ProviderCore.process_window

        def _window(self, grant):
            output = _before_count_low_bit(self, grant)
            busy = self.provider.node.in_system > 0
            output.counts = [count & ~1 | busy for count in output.counts]
            return output

        ProviderCore.process_window = _window
        """,
    )
