"""A private variable has another name."""

from fogveil.testbed.privacy.audit.sabotage import replace


def sabotage(product):
    replace(product / "fogveil/provider_node/boundary.py", "self._watcher", "self._observer", 10)
