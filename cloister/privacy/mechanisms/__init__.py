"""Mechanisms: each draws its noise and names its privacy event from the same fields."""
