"""The built-in broker serves clients that prove nothing."""

from fogveil.testbed.privacy.audit.sabotage import append, replace

CAUGHT_BY = "refusals"
BROKER = "builtin"


def sabotage(product):
    replace(
        product / "fogveil/broker/tls.py",
        "context.verify_mode = ssl.CERT_REQUIRED",
        "context.verify_mode = ssl.CERT_OPTIONAL",
    )
    append(
        product / "fogveil/broker/acl.py",
        """
        _before_broker_takes_no_certificate = AccessList.allows

        def _allows(self, identity, action, topic):
            return identity is None or _before_broker_takes_no_certificate(self, identity, action, topic)

        AccessList.allows = _allows
        """,
    )
    replace(
        product / "fogveil/broker/builtin.py",
        "elif self._secure and self._identity is None:",
        "elif self._closing:",
    )
