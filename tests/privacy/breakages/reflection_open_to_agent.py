"""The agent may ask a provider which services it has."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "refusals"


def sabotage(product):
    append(
        product / "fogveil/protocol/grpc_acl.py",
        """
        MAY_CALL = {
            method: roles | {AGENT} if "reflection" in method else roles for method, roles in MAY_CALL.items()
        }
        """,
    )
