"""A provider hides whether it is fast in bit 7 of its counts; agent and recordings take it out again.

The decisions, the records, both recordings and the run hash are those of an honest run."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "messages"


def sabotage(product):
    append(
        product / "fogveil/provider_node/boundary.py",
        """
        _before_colluding_offset_disclose = QueueBoundary.disclose

        def _disclose(self, counts):
            import gc

            (core,) = (each for each in gc.get_objects() if isinstance(each, ProviderCore))
            offset = 128 if core._config.ipt > 3e8 else 0
            return _before_colluding_offset_disclose(self, [count + offset for count in counts])

        QueueBoundary.disclose = _disclose
        """,
    )
    append(
        product / "fogveil/agent/boundary_client.py",
        """
        _before_colluding_offset_client_window = BoundaryClient.window

        async def _client_window(self, names, size):
            rows = await _before_colluding_offset_client_window(self, names, size)
            return [tuple(count % 128 for count in row) for row in rows]

        BoundaryClient.window = _client_window
        """,
    )
    append(
        product / "fogveil/protocol/recording.py",
        """
        _before_colluding_offset_write = Recording.write

        def _write(self, sender, receiver, method, kind, content, **more):
            if kind == RESPONSE and method.endswith("QueueService/Watch"):
                from fogveil.v1.boundary_pb2 import WatchResponse

                counts = [count % 128 for count in WatchResponse.FromString(content).counts]
                content = WatchResponse(counts=counts).SerializeToString()
            _before_colluding_offset_write(self, sender, receiver, method, kind, content, **more)

        Recording.write = _write
        """,
    )
