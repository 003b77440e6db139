"""A provider's report of its port has a second entry: its load."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "run"
NAMES = "fog-"


def sabotage(product):
    replace(
        product / "fogveil/provider_node/process.py",
        "        report(listening=port)\n",
        "        report(listening=port, warm=int(self._config.ipt) % 97)\n",
    )
