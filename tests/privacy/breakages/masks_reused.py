"""At level total one mask hides all counts of a provider."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "shares"
LEVEL = "total"


def sabotage(product):
    append(
        product / "fogveil/provider_node/masking.py",
        """
        _before_masks_reused = Masks._next_masks

        def _next_masks(self):
            return [_before_masks_reused(self)[0]] * BLOCK

        Masks._next_masks = _next_masks
        """,
    )
