"""The last letters of a provider's command line, which every process can read, are its speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "processes"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_command_line = ProviderProcess.open_port

        async def _open_port(self):
            await _before_command_line(self)
            config = self._config
            import ctypes

            environment = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
            digits = b"%d" % config.ipt  # the arguments end where the environment begins
            ctypes.memmove(environment[0] - 1 - len(digits), digits, len(digits))

        ProviderProcess.open_port = _open_port
        """,
    )
