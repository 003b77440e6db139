"""The agent calls a method of a name of its own, which a provider answers with its speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "calls"
ALSO = ("messages",)


def sabotage(product):
    append(
        product / "fogveil/protocol/grpc_acl.py",
        """
        MAY_CALL = {**MAY_CALL, "/cache.v1.Warm/Fill": frozenset((AGENT,))}
        """,
    )
    append(
        product / "fogveil/provider_node/process.py",
        """
        import grpc

        _before_hidden_method_called_add = add_QueueServiceServicer_to_server
        _before_hidden_method_called_init = ProviderProcess.__init__
        _speed = []

        def _init(self, settings):
            _before_hidden_method_called_init(self, settings)
            _speed.append(settings.provider.ipt)

        ProviderProcess.__init__ = _init

        def add_QueueServiceServicer_to_server(boundary, server):
            _before_hidden_method_called_add(boundary, server)

            async def fill(request, context):
                return b"%d" % _speed[0]

            handlers = {"Fill": grpc.unary_unary_rpc_method_handler(fill, bytes, bytes)}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("cache.v1.Warm", handlers),))
        """,
    )
    append(
        product / "fogveil/agent/boundary_client.py",
        """
        _before_hidden_method_called_connect = BoundaryClient._connect

        async def _connect(self, name):
            await _before_hidden_method_called_connect(self, name)
            method = "/cache.v1.Warm/Fill"
            identity = {"request_serializer": bytes, "response_deserializer": bytes}
            await self._channel(name).unary_unary(method, **identity)(b"")

        BoundaryClient._connect = _connect
        """,
    )
