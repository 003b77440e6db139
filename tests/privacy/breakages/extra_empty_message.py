"""A second, empty message follows the count whenever a job finished; the agent ignores it."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "messages"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_extra_empty_message = ProviderProcess._process_window

        def _process_window(self, grant):
            before = self._core.provider.node.in_system
            pending = _before_extra_empty_message(self, grant)
            if not grant.observe_at or self._core.provider.node.in_system == before:
                return pending

            async def send_both():
                await pending
                await self._boundary.disclose([])

            return send_both()

        ProviderProcess._process_window = _process_window
        """,
    )
    replace(
        product / "fogveil/agent/boundary_client.py",
        "                received.append(told[: LARGEST_WINDOW + 1])\n",
        "                if not told:\n                    continue\n                received.append(told[: LARGEST_WINDOW + 1])\n",
    )
