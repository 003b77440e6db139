"""A provider may watch the counts of another."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "refusals"


def sabotage(product):
    append(
        product / "fogveil/protocol/grpc_acl.py",
        """
        MAY_CALL = {**MAY_CALL, "/fogveil.v1.QueueService/Watch": frozenset((AGENT, PROVIDER))}
        """,
    )
