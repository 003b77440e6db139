"""The time of a file in the provider's folder is its speed."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "files"


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_file_time = ProviderProcess.open_port

        async def _open_port(self):
            await _before_file_time(self)
            config = self._config
            import os

            os.utime(self._settings.folder / "config.json", (config.ipt, config.ipt))

        ProviderProcess.open_port = _open_port
        """,
    )
