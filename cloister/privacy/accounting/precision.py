"""What double precision allows of an accountant."""

from __future__ import annotations

OUTWARD = 1e-9
"""Relative margin added to what is computed in floating point, whose errors are below 1e-10, the
edges of intervals of probability among them."""

LARGEST_EXPONENT = 700.0
"""Largest exponent whose exponential is a finite double: the largest double is exp(709.8)."""
