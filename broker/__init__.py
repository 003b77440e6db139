"""The MQTT side of the testbed: topics, access control and the brokers that relay workloads."""
