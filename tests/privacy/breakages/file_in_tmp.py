"""A provider writes its speed into a file in /tmp."""

from fogveil.testbed.privacy.audit.sabotage import append

CAUGHT_BY = "files"
CONFINED = True


def sabotage(product):
    append(
        product / "fogveil/provider_node/process.py",
        """
        _before_file_in_tmp = ProviderProcess.open_port

        async def _open_port(self):
            await _before_file_in_tmp(self)
            config = self._config
            from pathlib import Path

            path = Path(f"/tmp/fogveil-challenge-{self._settings.run[:8]}-{self._settings.name}")
            path.write_text(f"{config.ipt:.0f}")

        ProviderProcess.open_port = _open_port
        """,
    )
