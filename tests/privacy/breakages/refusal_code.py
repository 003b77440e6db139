"""The status code of a refusal is another one at a fast provider."""

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
            fast = _own and _own["ipt"] > 3e8
            code = grpc.StatusCode.UNAUTHENTICATED if fast else grpc.StatusCode.PERMISSION_DENIED
            await context.abort(code, "this identity may not call this method")
        """,
    )
