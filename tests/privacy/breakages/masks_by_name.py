"""At level total masks follow from the members' names, whatever keys they announce."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "freshness"
LEVEL = "total"
RUNS = 2


def sabotage(product):
    replace(
        product / "fogveil/provider_node/masking.py",
        "_Pair(derive.derive(shared_secret(own, public)), name == both[0])",
        '_Pair(("|".join(both) * 32).encode()[:32], name == both[0])',
    )
