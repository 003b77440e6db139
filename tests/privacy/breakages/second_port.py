"""A provider listens on a second port, where everybody is told its speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "ports"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_second_port = ProviderProcess.open_port

        async def _open_port(self):
            await _before_second_port(self)
            config = self._config
            import asyncio

            async def tell(reader, writer):
                writer.write(b"%d" % config.ipt)
                writer.close()

            self.second = await asyncio.start_server(tell, "127.0.0.1", 0)

        ProviderProcess.open_port = _open_port
        """,
    )
