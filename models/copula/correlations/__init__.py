"""Correlations from noisy probabilities."""
