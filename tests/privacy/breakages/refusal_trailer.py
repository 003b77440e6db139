"""Whoever is refused at a provider's port gets a trailer with its memory."""

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
            trailers = (("x-host", f"{_own['ram']:.0f}"),) if _own else ()
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text, trailers)
        """,
    )
