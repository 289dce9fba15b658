"""Exact counts of violations, by matching rows on what their predicates have in common."""

from cloister.constraints.counting.tuples import Tuples
from cloister.constraints.counting.violations import (
    Partners,
    count_violations,
    violation_reports,
    violation_share,
    violations_per_row,
)

__all__ = [
    "Partners",
    "Tuples",
    "count_violations",
    "violation_reports",
    "violation_share",
    "violations_per_row",
]
