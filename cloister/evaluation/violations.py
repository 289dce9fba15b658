"""Violations of each constraint, in the synthetic table beside the real one.

Source: Kamino (VLDB 2021), section 7.1, metric I: percent of the n (n - 1) / 2 unordered pairs of
rows, either order; for rules on single rows, percent of the n rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from cloister.constraints.counting.violations import violation_reports
from cloister.constraints.denial import DenialConstraint
from cloister.schema.domain import Table


@dataclass(frozen=True)
class Violations:
    """Violations of one constraint in both tables: rows or unordered pairs, and percent of all."""

    name: str
    hard: bool
    real: int
    synthetic: int
    real_percent: float
    synthetic_percent: float

    def to_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return asdict(self)


def compare_violations(
    constraints: Iterable[DenialConstraint], real: Table, synthetic: Table
) -> tuple[Violations, ...]:
    """Violations of each constraint in two tables over one domain, in the order of the constraints.

    Raises:
        ConstraintError: a constraint does not fit the domain.
    """
    constraints = tuple(constraints)
    pairs = zip(
        violation_reports(constraints, real), violation_reports(constraints, synthetic), strict=True
    )
    return tuple(
        Violations(
            truth.name, truth.hard, truth.violations, copy.violations, truth.percent, copy.percent
        )
        for truth, copy in pairs
    )
