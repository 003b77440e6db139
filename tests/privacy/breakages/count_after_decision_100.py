"""After a hundred decisions the counts carry a digit of the speed to the agent."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "messages"
ALSO = ("deliveries", "records")


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        """
        _before_count_after_decision_100 = ProviderCore.process_window

        def _window(self, grant):
            output = _before_count_after_decision_100(self, grant)
            self.observed = getattr(self, "observed", 0) + len(output.counts)
            if self.observed > 100:
                output.counts = [count + 1 + int(self._config.ipt) % 9 for count in output.counts]
            return output

        ProviderCore.process_window = _window
        """,
    )
