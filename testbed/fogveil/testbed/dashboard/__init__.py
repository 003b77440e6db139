"""The experimenter's page of a run, live or recorded: what the agent sees, and what stays private.

The page reads records and paces the clock. It asks no participant anything: the agent's half is
made from the agent's own record and the public facts, the private half from the providers' records.
"""
