"""A field that the protocol does not have tells the agent the number of jobs in the system."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "messages"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        r"""
        _before_unknown_field_with_load = QueueBoundary.disclose

        def _disclose(self, counts):
            import gc

            (core,) = (each for each in gc.get_objects() if isinstance(each, ProviderCore))
            message = boundary_module.WatchResponse(counts=counts)
            message.MergeFromString(b"\x10" + bytes((core.provider.node.in_system,)))
            return self._send(message)

        import fogveil.provider_node.boundary as boundary_module

        QueueBoundary.disclose = _disclose
        """,
    )
