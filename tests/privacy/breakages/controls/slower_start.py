"""A provider takes a moment longer to start."""

from fogveil.testbed.privacy.audit.sabotage import append


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_slower_start = ProviderProcess.open_port

        async def _open_port(self):
            await _before_slower_start(self)
            config = self._config
            import asyncio

            await asyncio.sleep(0.3)

        ProviderProcess.open_port = _open_port
        """,
    )
