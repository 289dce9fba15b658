"""Exact counts of violations, by matching rows on what their predicates have in common."""
