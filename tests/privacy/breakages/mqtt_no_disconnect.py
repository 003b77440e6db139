"""A fast provider leaves the broker without saying so."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "packets"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        import asyncio
        import os

        _before_mqtt_no_disconnect = ProviderProcess.follow

        async def _follow(self, clock):
            await _before_mqtt_no_disconnect(self, clock)
            if self._config.ipt > 3e8:
                await self.relay.drain()
                await asyncio.sleep(0.3)
                os._exit(0)

        ProviderProcess.follow = _follow
        """,
    )
