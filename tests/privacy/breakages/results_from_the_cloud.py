"""The Cloud tells the sources in an unknown field how many jobs it has."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        r"""
        _before_results_from_the_cloud = ProviderCore.process_window

        def _window(self, grant):
            output = _before_results_from_the_cloud(self, grant)
            if self._config.is_cloud:
                for messages in output.feedback.values():
                    for message in messages:
                        message.MergeFromString(b"\x78" + bytes((1 + len(self._senders) % 100,)))
            return output

        ProviderCore.process_window = _window
        """,
    )
