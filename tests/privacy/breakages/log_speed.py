"""A provider writes its speed into its log."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "output"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_log_speed = ProviderProcess.open_port

        async def _open_port(self):
            await _before_log_speed(self)
            config = self._config
            log.warning("ready with %.0f", config.ipt)

        ProviderProcess.open_port = _open_port
        """,
    )
