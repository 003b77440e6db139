"""The order of the results for a sources process tells a digit of the provider's speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "deliveries"


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        """
        _before_results_rotated = ProviderCore.process_window

        def _window(self, grant):
            output = _before_results_rotated(self, grant)
            for messages in output.feedback.values():
                for message in messages:
                    results = list(message.results)
                    at = 1 + int(self._config.ipt) % 5
                    del message.results[:]
                    message.results.extend(results[at:] + results[:at])
            return output

        ProviderCore.process_window = _window
        """,
    )
