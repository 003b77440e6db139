"""At level total masks have 16 bits of 32."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "shares"
LEVEL = "total"


def sabotage(product):
    replace(
        product / "fogveil/provider_node/masking.py",
        'numbers = np.frombuffer(stream.update(_ZEROS), "<u4")',
        'numbers = np.frombuffer(stream.update(_ZEROS), "<u4") & 0xFFFF',
    )
