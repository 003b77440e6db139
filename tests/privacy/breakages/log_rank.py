"""A provider writes into its log a word that only a fast one has."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "output"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_log_rank = ProviderProcess.open_port

        async def _open_port(self):
            await _before_log_rank(self)
            config = self._config
            if config.ipt > 3e8:
                log.info("ready early")

        ProviderProcess.open_port = _open_port
        """,
    )
