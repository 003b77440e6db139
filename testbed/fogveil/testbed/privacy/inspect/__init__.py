"""Inspect: every recorded crossing read, merged, filtered, summed up, and checked by packets."""
