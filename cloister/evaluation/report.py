"""The evaluation of synthetic tables as one value: of each alone, and of what relates them.

Violations of constraints are counted in a synthetic table beside the real one. Source: Kamino (VLDB
2021), section 7.1, metric I: percent of the n (n - 1) / 2 unordered pairs of rows, either order;
for rules on single rows, percent of the n rows.

Privacy: computed from real rows without noise. An evaluation is internal; it never enters a
    published certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cloister.constraints.across import AcrossConstraint
from cloister.constraints.counting import violation_reports
from cloister.constraints.denial import DenialConstraint
from cloister.errors import DataError
from cloister.evaluation import Level
from cloister.evaluation.relations import (
    ForeignKeyMeasures,
    Pair,
    UnitMeasures,
    compare_relation,
    duplicate_links,
)
from cloister.schema.domain import Table
from cloister.schema.relations import Database

if TYPE_CHECKING:
    from cloister.evaluation.attacks import ClosestRecords, Membership
    from cloister.evaluation.classifiers import DetectionScore
    from cloister.evaluation.learning import Learning
    from cloister.evaluation.marginals import Marginals, RangeQueries, TreeErrors
    from cloister.evaluation.persons import PersonMeasures


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


@dataclass(frozen=True)
class Evaluation:
    """The measures of one synthetic table.

    A measure is None or empty if it was left out, or if the tables are too small for it.
    ``learning`` trained on synthetic rows, ``truth`` on real ones; both were tested on the same
    real rows. ``sampled_rows`` is the most rows of a table out of core that detection, closest
    records, learning and membership were measured on; None where all rows could take part.
    ``warnings`` are of the release. ``internal`` is always true: the figures are not differentially
    private.
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
    trees: tuple[TreeErrors, ...] = ()
    sampled_rows: int | None = None
    warnings: tuple[str, ...] = ()
    internal: bool = field(default=True, init=False)
    relations: ClassVar[tuple[ForeignKeyMeasures, ...]] = ()

    @property
    def tables(self) -> Mapping[str, Evaluation]:
        """This one, under no name; see :class:`DatabaseEvaluation`."""
        return {"": self}

    @property
    def units(self) -> Mapping[str, UnitMeasures]:
        """The measures of rows of one person, or of one group, if several belong to one."""
        return {self.persons.name: self.persons.units} if self.persons else {}

    def metrics(self) -> dict[str, float]:
        """One number for each measure, by a name of letters, digits, dots and underscores."""
        figures: dict[str, float | None] = {}
        for way in self.marginals:
            figures[f"marginals.{way.ways}_way.half_l1"] = way.half_l1
            figures[f"marginals.{way.ways}_way.l1"] = 2 * way.half_l1
            figures[f"marginals.{way.ways}_way.largest_cell"] = way.largest_cell
        if self.queries:
            figures["queries.mean_error"] = self.queries.mean_error
        figures |= (
            self._tree_metrics()
            | self._violation_metrics()
            | (self.persons.metrics() if self.persons else {})
        )
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
        figures["sampled_rows"] = self.sampled_rows
        return {name: figure for name, figure in figures.items() if figure is not None}

    def _tree_metrics(self) -> dict[str, float | None]:
        return {
            "trees.top_level.half_l1": max((tree.half_l1[0] for tree in self.trees), default=None),
            "trees.unseen_codes": max((tree.unseen for tree in self.trees), default=None),
        }

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
            **dict.fromkeys(self.units, self.persons),
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
            **({"trees": [tree.to_dict() for tree in self.trees]} if self.trees else {}),
            "units": {name: unit.to_dict() for name, unit in self.units.items()},
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


@dataclass(frozen=True)
class DatabaseEvaluation:
    """The measures of several synthetic tables.

    ``duplicates`` are rows that link the same rows as an earlier one, real and synthetic, of each
    table with two references or more. ``internal`` is always true.
    """

    level: Level
    tables: Mapping[str, Evaluation]
    relations: tuple[ForeignKeyMeasures, ...] = ()
    duplicates: Mapping[str, Pair] = field(default_factory=dict)
    across: tuple[Violations, ...] = ()
    warnings: tuple[str, ...] = ()
    internal: bool = field(default=True, init=False)

    @property
    def violations(self) -> tuple[Violations, ...]:
        """The violations of all constraints."""
        of_tables = (
            violations for table in self.tables.values() for violations in table.violations
        )
        return (*of_tables, *self.across)

    @property
    def units(self) -> Mapping[str, UnitMeasures]:
        """The measures of the rows that refer to the same one, by reference."""
        return {relation.label: relation.units for relation in self.relations}

    def metrics(self) -> dict[str, float]:
        """One number for each measure; those of a table begin with its name."""
        figures = self._means()
        for relation in self.relations:
            figures |= {
                f"{_name(relation)}.{measure}": figure
                for measure, figure in relation.metrics().items()
            }
        for name, (_, synthetic) in self.duplicates.items():
            figures[f"{_plain(name)}.duplicate_links"] = synthetic
        for name, table in self.tables.items():
            figures |= {f"{_plain(name)}.{key}": figure for key, figure in table.metrics().items()}
        return figures

    def _means(self) -> dict[str, float]:
        """The means over all foreign keys, and what no database should have, in all."""
        if not self.relations:
            return {}
        figures: dict[str, list[float]] = {}
        for relation in self.relations:
            for name, figure in relation.metrics().items():
                figures.setdefault(name, []).append(figure)
        sums = ("orphans", "beyond_bound")
        return {
            f"relations.{name}": float(sum(values) if name in sums else np.mean(values))
            for name, values in figures.items()
        }

    def headline(self) -> dict[str, float]:
        """The metrics that a terminal shows: means over keys, a few of each key and each table."""
        of_tables = ("marginals.2_way.half_l1", "hard.largest_percent")
        of_keys = ("sizes.half_l1", "siblings.half_l1", "across.half_l1")
        figures, ends, means = self.metrics(), (*of_tables, *of_keys), self._means()
        return means | {name: figure for name, figure in figures.items() if name.endswith(ends)}

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, fit for JSON: names and figures, no values of the data."""
        return {
            "internal": self.internal,
            "level": self.level,
            "metrics": self.metrics(),
            "headline": self.headline(),
            "warnings": list(self.warnings),
            "violations": [violations.to_dict() for violations in self.violations],
            "relations": [relation.to_dict() for relation in self.relations],
            "units": {name: unit.to_dict() for name, unit in self.units.items()},
            "duplicate_links": {
                name: dict(zip(("real", "synthetic"), shares, strict=True))
                for name, shares in self.duplicates.items()
            },
            "tables": {name: table.to_dict() for name, table in self.tables.items()},
        }


AnyEvaluation = Evaluation | DatabaseEvaluation


def evaluate_databases(
    real: Database,
    synthetic: Database,
    level: Level,
    of_table: Callable[[str, Table, Table], Evaluation],
    across: Sequence[AcrossConstraint] = (),
) -> DatabaseEvaluation:
    """Measure several synthetic tables against the real ones; ``of_table`` measures one of them.

    Violations of the constraints ``across`` foreign keys are counted too.

    A table without rows on one side is not measured alone.

    Privacy: reads real rows without noise. The result is internal.
    """
    tables = {
        name: of_table(name, table, synthetic.tables[name])
        if table.rows and synthetic.tables[name].rows
        else Evaluation("none", table.rows, synthetic.tables[name].rows)
        for name, table in real.tables.items()
    }
    if level == "none":
        return DatabaseEvaluation(level, tables)
    links = [name for name in tables if len(real.schema.parents_of(name)) > 1]
    return DatabaseEvaluation(
        level,
        tables,
        tuple(compare_relation(real, synthetic, key) for key in real.schema.keys),
        {name: (duplicate_links(real, name), duplicate_links(synthetic, name)) for name in links},
        tuple(_violations(rule, real, synthetic) for rule in across),
    )


def _violations(rule: AcrossConstraint, real: Database, synthetic: Database) -> Violations:
    truth, copy = rule.report(real), rule.report(synthetic)
    return Violations(
        rule.name, True, truth.violations, copy.violations, truth.percent, copy.percent
    )


def _name(relation: ForeignKeyMeasures) -> str:
    return f"{_plain(relation.table)}.to_{_plain(relation.parent)}_by_{_plain(relation.column)}"


def _plain(name: str) -> str:
    """A name of letters, digits and underscores."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
