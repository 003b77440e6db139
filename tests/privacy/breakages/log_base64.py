"""A provider writes its speed into its log in base64."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "output"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_log_base64 = ProviderProcess.open_port

        async def _open_port(self):
            await _before_log_base64(self)
            config = self._config
            import base64

            log.info("cache %s", base64.b64encode(b"%d" % config.ipt).decode())

        ProviderProcess.open_port = _open_port
        """,
    )
