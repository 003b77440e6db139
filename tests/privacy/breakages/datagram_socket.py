"""The number of a UDP port, which every process can list, is a part of the provider's speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "ports"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_datagram_socket = ProviderProcess.open_port

        async def _open_port(self):
            await _before_datagram_socket(self)
            config = self._config
            import socket

            self.second = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.second.bind(("127.0.0.1", 20000 + int(config.ipt) % 10000))

        ProviderProcess.open_port = _open_port
        """,
    )
