"""How many rows are drawn, and how large tables are compared: for draws and their forecasts."""

from __future__ import annotations

OVERSAMPLING = 3
"""Rows drawn for each row of a balanced sample."""

MOST_PAIRS = 300
"""Pairs of attributes whose tables are compared at most."""

POOL_ROWS = 40_000
"""Rows by which a model's own rates of violation are measured."""

EXPECTED_ROWS = 100_000
"""Rows drawn from a model to estimate joint shares that were not measured."""

PAIR_CELLS = 10_000
"""Cells of a pair of attributes that a mixture may have measured, at most."""
