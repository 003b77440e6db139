"""At level total the shares are the counts: all masks are zero."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "shares"
LEVEL = "total"


def sabotage(product):
    append(
        product / "fogveil/provider_node/masking.py",
        """
        _before_masks_of_zero = Masks._next_masks

        def _next_masks(self):
            _before_masks_of_zero(self)
            return [0] * BLOCK

        Masks._next_masks = _next_masks
        """,
    )
