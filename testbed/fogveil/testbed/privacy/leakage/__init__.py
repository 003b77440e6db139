"""Leakage: how well an agent infers the providers' speeds from what it may see."""
