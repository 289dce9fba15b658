"""Bounds of a request."""

from __future__ import annotations

# Rows of one output: a thousand times those of the largest table that was released.
MOST_ROWS = 10**9
# Seeds for drawing rows: 128 bits, as many as the operating system gives.
MOST_SEED = 2**128 - 1
