"""Everything that crossed between participants: read, merged, summed up, and held to the wire."""
