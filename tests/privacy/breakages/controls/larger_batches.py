"""The MQTT client reads larger batches."""

from fogveil.testbed.privacy.audit.sabotage import replace


def sabotage(product):
    replace(product / "fogveil/broker/paho_transport.py", "READ_BATCH = 64", "READ_BATCH = 128")
