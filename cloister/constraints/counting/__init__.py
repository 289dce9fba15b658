"""Exact counts of violations, by matching rows on what their predicates have in common."""

from cloister.constraints.counting.violations import Partners as Partners
from cloister.constraints.counting.violations import count_violations as count_violations
from cloister.constraints.counting.violations import violation_reports as violation_reports
from cloister.constraints.counting.violations import violation_share as violation_share
from cloister.constraints.counting.violations import violations_per_row as violations_per_row
