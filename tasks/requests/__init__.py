"""Release requests: as they are made, resolved, planned, and repeated; and their bounds."""

from __future__ import annotations

MOST_ROWS = 10**9
"""Rows of one output: a thousand times those of the largest table that was released."""

MOST_SEED = 2**63 - 1
"""Seeds that a person gives for drawing rows: whole numbers that JSON and Prefect keep exactly."""
