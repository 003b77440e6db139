"""The MQTT plane: its topics and access control list, the participants' client, and the brokers."""
