"""When the run is over a provider ends the agent's stream with its speed in the trailers."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "calls"
ALSO = ("secrets",)


def sabotage(product):
    replace(
        product / "fogveil/provider_node/boundary.py",
        "                await replaced  # or until the watcher is gone\n",
        "                await _OVER.wait()\n"
        '                context.set_trailing_metadata((("x-speed", str(_SPEED[0])),))\n',
    )
    append(
        product / "fogveil/provider_node/boundary.py",
        """
        _OVER, _SPEED = asyncio.Event(), []
        """,
    )
    append(
        product / "fogveil/provider_node/process.py",
        """
        import asyncio

        from fogveil.provider_node import boundary as _boundary

        _before_trailers_at_the_end = ProviderProcess.follow

        async def _follow(self, clock):
            _boundary._SPEED.append(int(self._config.ipt))
            await _before_trailers_at_the_end(self, clock)
            _boundary._OVER.set()
            await self._server.stop(20)

        ProviderProcess.follow = _follow
        """,
    )
    # The agent, who is in league with it, stays until its streams have ended.
    append(
        product / "fogveil/agent/process.py",
        """
        import asyncio

        _before_trailers_at_the_end = AgentProcess.follow

        async def _follow(self, clock):
            await _before_trailers_at_the_end(self, clock)
            await asyncio.wait(self.boundary._readers, timeout=20)

        AgentProcess.follow = _follow
        """,
    )
