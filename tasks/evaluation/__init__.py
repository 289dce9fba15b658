"""Comparisons of a synthetic table with its real one; they stay inside."""
