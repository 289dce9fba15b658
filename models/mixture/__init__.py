"""Cloister's own engine: a mixture of products, fitted to marginals chosen round by round."""
