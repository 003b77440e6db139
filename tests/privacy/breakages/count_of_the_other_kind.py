"""The count tells the agent of the job in service, too, which waiting jobs do not."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "messages"
ALSO = ("deliveries", "records")


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        """
        _before_count_of_the_other_kind = ProviderCore.process_window

        def _window(self, grant):
            output = _before_count_of_the_other_kind(self, grant)
            output.counts = [count + min(1, self.provider.node.in_system) for count in output.counts]
            return output

        ProviderCore.process_window = _window
        """,
    )
