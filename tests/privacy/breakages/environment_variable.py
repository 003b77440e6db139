"""A provider writes its speed over the environment that its process shows."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "processes"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        r"""
        _before_environment_variable = ProviderProcess.open_port

        async def _open_port(self):
            await _before_environment_variable(self)
            config = self._config
            import ctypes

            environment = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
            ctypes.memmove(environment[0], b"SPEED=%d\0" % config.ipt, 16)

        ProviderProcess.open_port = _open_port
        """,
    )
