"""The Bayesian network: structure, conditional tables, and rows drawn from it."""
