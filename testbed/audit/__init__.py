"""The audit: a testbed with planted secrets, an attacker, an auditor, and one verdict a promise."""
