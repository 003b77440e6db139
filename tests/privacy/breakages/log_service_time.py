"""A provider writes its service time, rounded, into its log."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "output"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_log_service_time = ProviderProcess.open_port

        async def _open_port(self):
            await _before_log_service_time(self)
            config = self._config
            log.info("warm after %.3f", self._core.provider.expected[0])

        ProviderProcess.open_port = _open_port
        """,
    )
