"""Feasible sets of hard constraints: what they are, and how they are chosen."""
