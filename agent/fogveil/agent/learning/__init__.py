"""The learning agents: hyper-parameters, replay, networks, double Q-learning, checkpoints."""
