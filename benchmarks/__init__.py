"""Benchmarks: many releases from one configuration, each charged, measured and kept, and what they say together."""
