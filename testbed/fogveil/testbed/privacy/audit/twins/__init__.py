"""Non-interference: runs that differ only in secrets look the same to everybody."""
