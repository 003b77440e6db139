"""The node's count is computed by a function of its own."""

from fogveil.testbed.privacy.audit.sabotage import append


def sabotage(product):
    append(
        product / "fogveil/provider_node/provider.py",
        """
        def _count(provider):
            waiting = provider.config.count is CountKind.WAITING
            return provider.node.waiting if waiting else provider.node.in_system

        Provider.count = property(_count)
        """,
    )
