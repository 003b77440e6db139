"""What a provider serves, as the auditor's identity sees it by server reflection."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc import aio
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from fogveil.channels import OPTIONS
from fogveil.identity import Credentials, Identity

METHOD = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


async def served_methods(address: str, host: Identity, auditor: Credentials) -> list[Any]:
    """Return the descriptions of all methods that a server names, except reflection itself."""
    options = [*OPTIONS, ("grpc.ssl_target_name_override", host.host)]
    channel = aio.secure_channel(address, auditor.for_channel(), options=options)
    async with channel:
        ask = channel.stream_stream(
            METHOD,
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )()
        await ask.write(ServerReflectionRequest(list_services=""))
        listed: Any = await ask.read()
        names = [service.name for service in listed.list_services_response.service]
        pool = descriptor_pool.DescriptorPool()
        found: list[Any] = []
        for name in names:
            if name.startswith("grpc.reflection."):
                continue
            await ask.write(ServerReflectionRequest(file_containing_symbol=name))
            told: Any = await ask.read()
            for content in told.file_descriptor_response.file_descriptor_proto:
                pool.Add(FileDescriptorProto.FromString(content))
            found += pool.FindServiceByName(name).methods
        ask.cancel()
    return found
