"""A provider starts a process whose command line is its speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "processes"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_child_process = ProviderProcess.open_port

        async def _open_port(self):
            await _before_child_process(self)
            config = self._config
            import ctypes
            import subprocess

            libc = ctypes.CDLL(None)
            subprocess.Popen(
                ["sleep", f"{1000 + config.ipt * 1e-12:.15f}"],
                preexec_fn=lambda: libc.prctl(1, 9),  # it ends with the provider
            )

        ProviderProcess.open_port = _open_port
        """,
    )
