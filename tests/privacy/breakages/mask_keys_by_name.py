"""At level total a provider's key follows from its name, and so do its masks."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "freshness"
LEVEL = "total"
RUNS = 2


def sabotage(product):
    replace(
        product / "fogveil/provider_node/membership.py",
        "self._own = own or X25519PrivateKey.generate()",
        "self._own = own or _key_of(name)",
    )
    append(
        product / "fogveil/provider_node/membership.py",
        """
        def _key_of(name):
            import hashlib

            return X25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
        """,
    )
