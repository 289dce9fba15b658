"""Soft constraints: how often rows violate them, and weights that bring a sample to a rate."""
