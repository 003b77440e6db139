"""The schema check: the fields that a provider serves the agent equal a checked-in list."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc import aio
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from fogveil.core.disclosure import Level
from fogveil.core.errors import InfrastructureError
from fogveil.protocol.channels import OPTIONS
from fogveil.protocol.credentials import Credentials
from fogveil.protocol.identity import Identity
from fogveil.testbed.privacy.audit.findings import Finding, judge

ALLOWED = "boundary.txt"
"""Every field that the agent's identity may reach, by level. It is edited on purpose only."""
ANSWERED_WITHIN = 300.0
"""Seconds after which a server that lists nothing cannot be examined."""
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

_TYPES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def allowed_fields(level: Level) -> set[str]:
    """Return the fields of the checked-in list for a level, with numbers and types."""
    lines = files(__package__).joinpath(ALLOWED).read_text(encoding="utf-8").splitlines()
    entries = [line.split() for line in lines if line and not line.startswith("#")]
    return {field for for_level, field in entries if for_level == level.word}


def fields_of(descriptor: Descriptor) -> Iterator[str]:
    """Yield every field of a message and of the messages in it, with its number and type."""
    for field in descriptor.fields:
        kind = field.message_type.name if field.message_type else _TYPES[field.type]
        repeated = "repeated-" if field.is_repeated else ""
        yield f"{descriptor.name}.{field.name}={field.number}:{repeated}{kind}"
        if field.message_type:
            yield from fields_of(field.message_type)


def check_schema(level: Level, served: Mapping[str, Iterable[Any]]) -> Finding:
    """Compare the fields of the methods that each provider serves the agent with the list."""
    listed = allowed_fields(level)
    faults: list[str] = []
    fields: set[str] = set()
    for provider, methods in served.items():
        reachable = {field for method in methods for field in fields_of(method.output_type)}
        faults += [f"{provider} serves {name}: not listed" for name in sorted(reachable - listed)]
        faults += [f"{provider} does not serve {name}" for name in sorted(listed - reachable)]
        fields |= reachable
    evidence = (
        f"each of {len(served)} providers lists exactly {', '.join(sorted(fields)) or 'nothing'}"
    )
    return judge("schema: only listed fields are served", evidence, faults, len(fields))


async def served_methods(address: str, host: Identity, auditor: Credentials) -> list[Any]:
    """Return the descriptors of all methods that a server lists by reflection, except its own."""
    try:
        async with asyncio.timeout(ANSWERED_WITHIN):
            return await _served_methods(address, host, auditor)
    except aio.AioRpcError as error:
        sentence = f"{host.name} does not list what it serves: {error.details()}"
        raise InfrastructureError(sentence) from error
    except TimeoutError as error:
        sentence = f"{host.name} did not list what it serves within {ANSWERED_WITHIN:g} s"
        raise InfrastructureError(sentence) from error


async def _served_methods(address: str, host: Identity, auditor: Credentials) -> list[Any]:
    options = [*OPTIONS, ("grpc.ssl_target_name_override", host.host)]
    channel = aio.secure_channel(address, auditor.for_channel(), options=options)
    async with channel:
        await channel.channel_ready()  # a busy machine may need several attempts
        call = channel.stream_stream(
            REFLECTION,
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )()
        await call.write(ServerReflectionRequest(list_services=""))
        listing: Any = await call.read()
        names = [service.name for service in listing.list_services_response.service]
        pool = descriptor_pool.DescriptorPool()
        methods: list[Any] = []
        for name in names:
            if name.startswith("grpc.reflection."):
                continue
            await call.write(ServerReflectionRequest(file_containing_symbol=name))
            response: Any = await call.read()
            for content in response.file_descriptor_response.file_descriptor_proto:
                pool.Add(FileDescriptorProto.FromString(content))
            methods += pool.FindServiceByName(name).methods
        call.cancel()
    return methods
