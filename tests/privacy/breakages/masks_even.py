"""At level total masks are even: the low bit of a share is that of the count."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "shares"
LEVEL = "total"


def sabotage(product):
    replace(
        product / "fogveil/provider_node/masking.py",
        'numbers = np.frombuffer(stream.update(_ZEROS), "<u4")',
        'numbers = np.frombuffer(stream.update(_ZEROS), "<u4") & 0xFFFFFFFE',
    )
