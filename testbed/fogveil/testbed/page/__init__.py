"""Pages of results: one HTML file each, which works without a network."""
