"""The only modules that open real data, and the rows that are drawn in its place."""
