"""The central agent: places each workload by a policy and what is disclosed to it."""
