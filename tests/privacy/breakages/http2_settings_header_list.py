"""The largest header list that a provider's SETTINGS permit the clock tells its speed."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "frames"


def sabotage(product):
    replace(
        product / "fogveil/protocol/channels.py",
        'options = [*OPTIONS, ("grpc.ssl_target_name_override", peer.host)]',
        'options = [*OPTIONS, ("grpc.ssl_target_name_override", peer.host)]\n        if own := getattr(settings, "provider", None):\n            options.append(("grpc.max_metadata_size", 16384 + int(own.ipt) % 997))',
    )
