"""A mixture of products, and its fit to noisy marginals."""
