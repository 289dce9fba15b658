"""The evaluation of one synthetic table against the real one: all measures as one value.

Privacy: computed from real rows without noise. An evaluation is internal; it never enters a
    published certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cloister.constraints.denial import DenialConstraint
from cloister.errors import DataError
from cloister.evaluation.attacks import (
    FEWEST_ATTACK_ROWS,
    ClosestRecords,
    Membership,
    closest_records,
    comparable_records,
    infer_membership,
)
from cloister.evaluation.detection import DetectionScore, detect, detectable
from cloister.evaluation.learning import (
    Learning,
    Split,
    Teacher,
    learnable,
    synthetic_training_rows,
    train_and_test,
)
from cloister.evaluation.marginals import Marginals, compare_marginals
from cloister.evaluation.options import Level, Panel
from cloister.evaluation.queries import RangeQueries, compare_queries
from cloister.evaluation.targets import PredictionTarget
from cloister.evaluation.violations import Violations, compare_violations
from cloister.schema.domain import Table


@dataclass(frozen=True)
class Evaluation:
    """The measures of one synthetic table.

    A measure is None or empty if it was left out, or if the tables are too small for it.
    ``learning`` trained on synthetic rows, ``truth`` on real ones; both were tested on the same
    real rows. ``internal`` is always true: the figures are not differentially private.
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
        figures |= self._violation_metrics()
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
        }
        return {
            "internal": self.internal,
            "level": self.level,
            "real_rows": self.real_rows,
            "synthetic_rows": self.synthetic_rows,
            "metrics": self.metrics(),
            "marginals": [way.to_dict() for way in self.marginals],
            "violations": [violations.to_dict() for violations in self.violations],
            **{name: part.to_dict() for name, part in parts.items() if part is not None},
        }


def evaluate_tables(
    real: Table,
    synthetic: Table,
    constraints: Sequence[DenialConstraint],
    targets: Sequence[PredictionTarget],
    level: Level,
    held_out: Table | None = None,
    panel: Panel = "nine",
    teach: Teacher = train_and_test,
) -> Evaluation:
    """Measure a synthetic table against the real one.

    ``none`` measures nothing; ``quick`` marginals, range queries, violations, detection and closest
    records; ``full`` also trains a ``panel`` of models on synthetic and on real rows, and attacks
    membership if there are ``held_out`` real rows of the same population that took no part in the
    fit. ``teach`` trains on the real rows, or returns scores that were computed before.

    Raises:
        DataError: the tables have other columns, or one has no rows.
        ConstraintError: a constraint does not fit the columns.

    Privacy: reads real rows without noise. The result is internal.
    """
    _require_alike(real, synthetic)
    evaluation = Evaluation(level, real.rows, synthetic.rows)
    if level == "none":
        return evaluation
    evaluation = replace(
        evaluation,
        marginals=compare_marginals(real, synthetic),
        queries=compare_queries(real, synthetic) if real.domain.modelled else None,
        violations=compare_violations(constraints, real, synthetic),
        detection=detect(real, synthetic) if detectable(real, synthetic) else None,
        closest=closest_records(real, synthetic) if comparable_records(real, synthetic) else None,
    )
    if level == "quick":
        return evaluation
    attackable = (
        held_out is not None
        and comparable_records(held_out, synthetic)
        and real.rows >= FEWEST_ATTACK_ROWS
    )
    membership = (
        infer_membership(real, held_out, synthetic) if attackable and held_out is not None else None
    )
    return replace(
        _with_learning(evaluation, real, synthetic, targets, panel, teach), membership=membership
    )


def _with_learning(
    evaluation: Evaluation,
    real: Table,
    synthetic: Table,
    targets: Sequence[PredictionTarget],
    panel: Panel,
    teach: Teacher,
) -> Evaluation:
    if not learnable(real, synthetic, targets):
        return evaluation
    split = Split.of(real)
    learning = train_and_test(synthetic_training_rows(synthetic), split.test, targets, panel)
    return replace(
        evaluation, learning=learning, truth=teach(split.train, split.test, targets, panel)
    )


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
