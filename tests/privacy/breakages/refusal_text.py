"""Whoever is refused at a provider's port is told its speed in the error text."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "refusals"


def sabotage(product):
    append(
        product / "fogveil/protocol/grpc_acl.py",
        """
        import json
        import sys
        from pathlib import Path

        _config = Path(sys.argv[sys.argv.index("--config") + 1]) if "--config" in sys.argv else None
        _own = json.loads(_config.read_text()).get("provider") if _config else None

        async def _refuse(_request, context):
            text = "this identity may not call this method"
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"{text} ({_own['ipt']:.0f})" if _own else text
            )
        """,
    )
