"""The leakage meter: what an agent can infer of the providers' speeds from what it may see."""
