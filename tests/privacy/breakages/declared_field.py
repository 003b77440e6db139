"""boundary.proto gets a second field, the provider's speed, which is served and sent."""

import re

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from fogveil.testbed.privacy.audit.sabotage import append
from fogveil.v1 import boundary_pb2

CAUGHT_BY = "schema"
ALSO = ("messages",)


def sabotage(product):
    file = FileDescriptorProto()
    boundary_pb2.DESCRIPTOR.CopyToProto(file)
    response = next(each for each in file.message_type if each.name == "WatchResponse")
    response.field.add(name="speed", number=2, type=1, label=1)
    path = product / "fogveil/v1/boundary_pb2.py"
    literal = repr(file.SerializeToString())
    path.write_text(
        re.sub(
            r"AddSerializedFile\(.*\)", lambda _: f"AddSerializedFile({literal})", path.read_text()
        )
    )
    append(
        product / "fogveil/provider_node/boundary.py",
        """
        def _disclose(self, counts):
            import gc

            (core,) = (each for each in gc.get_objects() if isinstance(each, ProviderCore))
            return self._send(WatchResponse(counts=counts, speed=core._config.ipt))

        QueueBoundary.disclose = _disclose
        """,
    )
