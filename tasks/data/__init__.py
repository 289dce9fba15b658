"""The only modules that open real data, and what is made of it before the door."""
