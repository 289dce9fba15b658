"""Noisy view tables made consistent, and whole counts of them."""
