"""The evaluation of one synthetic table against the real one as one value.

Privacy: computed from real rows without noise. An evaluation is internal; it never enters a
    published certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloister.errors import DataError
from cloister.evaluation.options import Level
from cloister.schema.domain import Table

if TYPE_CHECKING:
    from cloister.evaluation.attacks import ClosestRecords, Membership
    from cloister.evaluation.classifiers.detection import DetectionScore
    from cloister.evaluation.classifiers.learning import Learning
    from cloister.evaluation.marginals import Marginals
    from cloister.evaluation.persons import PersonMeasures
    from cloister.evaluation.queries import RangeQueries
    from cloister.evaluation.violations import Violations


@dataclass(frozen=True)
class Evaluation:
    """The measures of one synthetic table.

    A measure is None or empty if it was left out, or if the tables are too small for it.
    ``learning`` trained on synthetic rows, ``truth`` on real ones; both were tested on the same
    real rows. ``warnings`` are of the release. ``internal`` is always true: the figures are not
    differentially private.
    """

    level: Level
    real_rows: int
    synthetic_rows: int
    marginals: tuple[Marginals, ...] = ()
    queries: RangeQueries | None = None
    violations: tuple[Violations, ...] = ()
    detection: DetectionScore | None = None
    closest: ClosestRecords | None = None
    learning: Learning | None = None
    truth: Learning | None = None
    membership: Membership | None = None
    persons: PersonMeasures | None = None
    warnings: tuple[str, ...] = ()
    internal: bool = field(default=True, init=False)

    def metrics(self) -> dict[str, float]:
        """One number for each measure, by a name of letters, digits, dots and underscores."""
        figures: dict[str, float | None] = {}
        for way in self.marginals:
            figures[f"marginals.{way.ways}_way.half_l1"] = way.half_l1
            figures[f"marginals.{way.ways}_way.l1"] = 2 * way.half_l1
            figures[f"marginals.{way.ways}_way.largest_cell"] = way.largest_cell
        if self.queries:
            figures["queries.mean_error"] = self.queries.mean_error
        figures |= self._violation_metrics() | (self.persons.metrics() if self.persons else {})
        if self.detection:
            figures["detection.auc"] = self.detection.auc
        if self.closest:
            figures["closest.copies"] = self.closest.copies
            figures["closest.median_ratio"] = self.closest.median_ratio
        for trained_on, scores in (("synthetic", self.learning), ("real", self.truth)):
            if scores:
                figures[f"learning.{trained_on}.accuracy"] = scores.accuracy
                figures[f"learning.{trained_on}.f1"] = scores.f1
        if self.membership:
            figures["membership.auc"] = self.membership.auc
        return {name: figure for name, figure in figures.items() if figure is not None}

    def _violation_metrics(self) -> dict[str, float | None]:
        hard = [v.synthetic_percent for v in self.violations if v.hard]
        soft = [abs(v.synthetic_percent - v.real_percent) for v in self.violations if not v.hard]
        return {
            "violations.hard.largest_percent": max(hard, default=None),
            "violations.soft.largest_difference": max(soft, default=None),
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, fit for JSON: names and figures, no values of the data."""
        parts = {
            "queries": self.queries,
            "detection": self.detection,
            "closest_records": self.closest,
            "learning": self.learning,
            "truth": self.truth,
            "membership": self.membership,
            "persons": self.persons,
        }
        return {
            "internal": self.internal,
            "level": self.level,
            "real_rows": self.real_rows,
            "synthetic_rows": self.synthetic_rows,
            "metrics": self.metrics(),
            "warnings": list(self.warnings),
            "marginals": [way.to_dict() for way in self.marginals],
            "violations": [violations.to_dict() for violations in self.violations],
            **{name: part.to_dict() for name, part in parts.items() if part is not None},
        }


def unmeasured_evaluation(real: Table, synthetic: Table, level: Level = "none") -> Evaluation:
    """The evaluation of two tables of which only the numbers of rows are known yet.

    Raises:
        DataError: the tables have other columns, or one has no rows.
    """
    _require_alike(real, synthetic)
    return Evaluation(level, real.rows, synthetic.rows)


def _require_alike(real: Table, synthetic: Table) -> None:
    if real.domain.names != synthetic.domain.names:
        raise DataError(
            "the synthetic table has other columns than the real one; evaluate tables of one spec"
        )
    for table, what in ((real, "real"), (synthetic, "synthetic")):
        if table.rows == 0:
            raise DataError(
                f"the {what} table has no rows; an evaluation needs at least one row of each"
            )
