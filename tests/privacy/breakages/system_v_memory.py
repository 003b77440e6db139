"""The size of a System V memory segment, which every process can list, is a part of the speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "files"
CONFINED = True


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_system_v_memory = ProviderProcess.open_port

        async def _open_port(self):
            await _before_system_v_memory(self)
            config = self._config
            import ctypes

            libc = ctypes.CDLL(None)
            self.segment = libc.shmget(0, 4096 + int(config.ipt) % 10**6, 0o1666)
            libc.shmat.restype = ctypes.c_void_p
            libc.shmat(self.segment, None, 0)
            libc.shmctl(self.segment, 0, None)  # removed when the process ends

        ProviderProcess.open_port = _open_port
        """,
    )
