"""The last digits of a result's time tell a sources process the provider's speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        """
        _before_result_times = ProviderCore.process_window

        def _window(self, grant):
            output = _before_result_times(self, grant)
            for messages in output.feedback.values():
                for message in messages:
                    for result in message.results:
                        result.finished = round(result.finished, 3) + self._config.ipt * 1e-15
            return output

        ProviderCore.process_window = _window
        """,
    )
