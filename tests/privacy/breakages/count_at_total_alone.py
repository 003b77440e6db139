"""At level total alone every provider leaves a waiting job out, and so tells less than it should."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "shares"
ALSO = ("records",)
LEVEL = "total"


def sabotage(product):
    append(
        product / "fogveil/provider_node/core.py",
        """
        from fogveil.core.disclosure import Level

        _before_count_at_total_alone = ProviderCore.process_window

        def _window(self, grant):
            output = _before_count_at_total_alone(self, grant)
            if self._config.disclosure is Level.TOTAL:
                output.counts = [max(0, count - 1) for count in output.counts]
            return output

        ProviderCore.process_window = _window
        """,
    )
