"""How participants talk: identities, channels, who may call what, the clock client, recordings."""
