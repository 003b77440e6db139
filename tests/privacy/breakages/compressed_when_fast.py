"""The stream of a fast provider is compressed, that of a slow one is not."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "calls"


def sabotage(product):
    append(
        product / "fogveil/provider_node/boundary.py",
        """
        class _Context:
            def __init__(self, context):
                self.context = context

            def __getattr__(self, name):
                return getattr(self.context, name)

            async def send_initial_metadata(self, metadata):
                import base64
                import gc

                import grpc

                (core,) = (each for each in gc.get_objects() if isinstance(each, ProviderCore))
                config, expected = core._config, core.provider.expected
                if config.ipt > 3e8:
                    self.context.set_compression(grpc.Compression.Gzip)
                await self.context.send_initial_metadata(metadata)

        _before_compressed_when_fast = _WatchStream._serve_watcher

        async def _serve_watcher(self, request, context):
            await _before_compressed_when_fast(self, request, _Context(context))

        _WatchStream._serve_watcher = _serve_watcher
        """,
    )
