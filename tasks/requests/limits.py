"""Bounds of a request."""

from __future__ import annotations

# Rows of one output: a thousand times those of the largest table that was released.
MOST_ROWS = 10**9
# Seeds that a person gives for drawing rows: whole numbers that JSON and Prefect keep exactly.
MOST_SEED = 2**63 - 1
