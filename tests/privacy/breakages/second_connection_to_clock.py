"""A fast provider opens a second connection to the clock."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "connections"
ALSO = ("ports",)


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_second_connection_to_clock = ProviderProcess.open_port

        async def _open_port(self):
            await _before_second_connection_to_clock(self)
            config = self._config
            import asyncio

            if config.ipt > 3e8:
                host, _, port = self._settings.clock.rpartition(":")
                if host == "unix":
                    self.second = await asyncio.open_unix_connection(port)
                else:
                    self.second = await asyncio.open_connection(host, port)

        ProviderProcess.open_port = _open_port
        """,
    )
