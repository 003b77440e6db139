"""What every part of fogveil shares and depends on nothing: errors, levels, keyed randomness."""
