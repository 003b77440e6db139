"""A provider joins the clock with a header that tells its memory."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "calls"


def sabotage(product):
    append(
        product / "fogveil/protocol/clock_client.py",
        """
        class _Stub(ClockServiceStub):
            def __init__(self, channel):
                super().__init__(channel)
                join = self.Join
                self.Join = lambda: join(metadata=(("x-host", MEMORY),)) if MEMORY else join()

        import json
        import sys
        from pathlib import Path

        _own = json.loads(Path(sys.argv[sys.argv.index("--config") + 1]).read_text()).get("provider")
        MEMORY = f"{_own['ram']:.0f}" if _own else ""
        ClockServiceStub = _Stub
        """,
    )
