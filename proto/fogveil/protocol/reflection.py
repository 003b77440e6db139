"""Server reflection: what a server serves, told to the auditor's identity (see fogveil.access)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from grpc import aio
from grpc_reflection.v1alpha.reflection import aio as reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

SERVICES = "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"
"""Two names of one service with the same messages: clients ask for the first one first, and are
served both, for a refusal would keep them from trying the second."""


def serve_reflection(names: Iterable[str], server: aio.Server) -> None:
    """Let a server describe these of its services."""
    servicer: Any = reflection.ReflectionServicer(names)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=ServerReflectionRequest.FromString,
        response_serializer=ServerReflectionResponse.SerializeToString,
    )
    for service in SERVICES:
        handlers = {"ServerReflectionInfo": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
