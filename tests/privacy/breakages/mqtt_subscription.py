"""The agent asks the broker for the results, which tell when jobs finished."""

from fogveil.testbed.privacy.audit.sabotage import replace

CAUGHT_BY = "packets"
ALSO = ("output",)


def sabotage(product):
    replace(
        product / "fogveil/agent/process.py",
        "        await relay.subscribe(Topics(settings.run).all_workloads)\n",
        "        await relay.subscribe(Topics(settings.run).all_workloads)\n        with contextlib.suppress(Exception):\n            await relay.subscribe(Topics(settings.run).all_feedback(settings.sources[0]))\n",
    )
    replace(
        product / "fogveil/agent/process.py",
        "import logging\n",
        "import contextlib\nimport logging\n",
    )
