"""The testbed as containers: who meets whom on which network, the engine, compose files."""
