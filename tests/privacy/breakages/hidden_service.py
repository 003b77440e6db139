"""The service of level full is served at level count, without reflection listing it."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "refusals"


def sabotage(product):
    replace(
        product / "fogveil/provider_node/process.py",
        "if level is Level.FULL:",
        "if level is not Level.TOTAL:",
    )
