"""The name of an abstract Unix socket, which every process can list, is the provider's speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "ports"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        r"""
        _before_abstract_socket = ProviderProcess.open_port

        async def _open_port(self):
            await _before_abstract_socket(self)
            config = self._config
            import socket

            self.second = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.second.bind(f"\0fogveil-{config.ipt:.0f}")
            self.second.listen()

        ProviderProcess.open_port = _open_port
        """,
    )
