"""Every participant imports a module that it does not use."""

from fogveil.testbed.privacy.audit.sabotage import append


def sabotage(product):
    append(
        product / "fogveil/protocol/participant.py",
        """
        import wave  # noqa
        """,
    )
