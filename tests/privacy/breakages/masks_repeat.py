"""At level total the masks repeat after 16 observations."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "shares"
LEVEL = "total"


def sabotage(product):
    append(
        product / "fogveil/provider_node/masking.py",
        """
        _before_masks_repeat = Masks._next_masks

        def _next_masks(self):
            first = _before_masks_repeat(self)[:16]
            return first * (BLOCK // 16)

        Masks._next_masks = _next_masks
        """,
    )
