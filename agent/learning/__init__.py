"""How agents learn: hyper-parameters, replay, networks, double Q-learning, checkpoints."""
