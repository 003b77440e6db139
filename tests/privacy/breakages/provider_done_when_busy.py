"""A provider says ProviderDone to the clock whenever a job finishes; the clock ignores it."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "messages"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_provider_done_when_busy_follow = ProviderProcess.follow

        async def _follow(self, clock):
            self.clock = clock
            await _before_provider_done_when_busy_follow(self, clock)

        ProviderProcess.follow = _follow
        _before_provider_done_when_busy_process_window = ProviderProcess._process_window

        def _process_window(self, grant):
            before = self._core.provider.node.in_system
            pending = _before_provider_done_when_busy_process_window(self, grant)
            if self._core.provider.node.in_system != before and not grant.flush:
                self.clock.send(provider_done=ProviderDone())
            return pending

        ProviderProcess._process_window = _process_window
        """,
    )
    append(
        product / "fogveil/clock/core.py",
        """
        _before_provider_done_when_busy_handle = Windows.handle

        def _handle(self, name, message):
            extra = message.WhichOneof("kind") == "provider_done" and not self._open_flushes.get(name)
            return [] if extra else _before_provider_done_when_busy_handle(self, name, message)

        Windows.handle = _handle
        """,
    )
