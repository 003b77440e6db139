"""The name of a provider's process, which every process can read, is its speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "processes"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_process_name = ProviderProcess.open_port

        async def _open_port(self):
            await _before_process_name(self)
            config = self._config
            import ctypes

            ctypes.CDLL(None).prctl(15, b"fog%d" % config.ipt, 0, 0, 0)

        ProviderProcess.open_port = _open_port
        """,
    )
