"""A fast Fog provider closes a window by two messages to the Cloud in place of one."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        """
        _before_aggregates_in_two_messages = ProviderCore.process_window

        def _window(self, grant):
            output = _before_aggregates_in_two_messages(self, grant)
            if output.aggregates and self._config.ipt > 3e8:
                output.aggregates[-1].more = True
                output.aggregates += self._outbox.take_aggregates()
            return output

        ProviderCore.process_window = _window
        """,
    )
