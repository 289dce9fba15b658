"""The evaluation of several synthetic tables: of each alone, and of what relates them.

Privacy: computed from real rows without noise. An evaluation is internal; it never enters a
    published certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cloister.constraints.across import AcrossConstraint
from cloister.evaluation.databases.relations import (
    ForeignKeyMeasures,
    Pair,
    compare_relation,
    duplicate_links,
)
from cloister.evaluation.options import Level
from cloister.evaluation.report import Evaluation
from cloister.evaluation.violations import Violations
from cloister.schema.domain import Table
from cloister.schema.relations.database import Database


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
        of_tables = (own for table in self.tables.values() for own in table.violations)
        return (*of_tables, *self.across)

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
            figures |= {f"{_plain(name)}.{key}": own for key, own in table.metrics().items()}
        return figures

    def _means(self) -> dict[str, float]:
        """The means over all foreign keys, and what no database should have, in all."""
        if not self.relations:
            return {}
        found: dict[str, list[float]] = {}
        for relation in self.relations:
            for name, figure in relation.metrics().items():
                found.setdefault(name, []).append(figure)
        sums = ("orphans", "beyond_bound")
        return {
            f"relations.{name}": float(sum(own) if name in sums else np.mean(own))
            for name, own in found.items()
        }

    def headline(self) -> dict[str, float]:
        """The metrics that a terminal shows: of relationships in the mean, a few of each table."""
        figures, ends = self.metrics(), ("marginals.2_way.half_l1", "hard.largest_percent")
        means = self._means()
        return means | {name: own for name, own in figures.items() if name.endswith(ends)}

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
            "duplicate_links": {
                name: dict(zip(("real", "synthetic"), own, strict=True))
                for name, own in self.duplicates.items()
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
        name: of_table(name, own, synthetic.tables[name])
        if own.rows and synthetic.tables[name].rows
        else Evaluation("none", own.rows, synthetic.tables[name].rows)
        for name, own in real.tables.items()
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
