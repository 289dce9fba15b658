"""The only modules that open real data, and what they do with it before the door."""
