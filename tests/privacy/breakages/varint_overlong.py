"""Odd job numbers make the agent's count a byte longer: a varint that is not the shortest."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "messages"


def sabotage(product):
    append(
        product / "fogveil/v1/boundary_pb2_grpc.py",
        r"""
        def _dishonest(message):
            numbers = b"".join(bytes((0x80 | count, 0x00)) for count in message.counts if count < 128)
            return b"\x0a" + bytes((len(numbers),)) + numbers

        def add_QueueServiceServicer_to_server(servicer, server):
            handler = grpc.unary_stream_rpc_method_handler(
                servicer.Watch,
                request_deserializer=fogveil_dot_v1_dot_boundary__pb2.WatchRequest.FromString,
                response_serializer=_dishonest,
            )
            name = "fogveil.v1.QueueService"
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(name, {"Watch": handler}),)
            )
        """,
    )
