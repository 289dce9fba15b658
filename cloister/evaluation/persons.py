"""How alike real and synthetic persons are: their rows, their attributes, spread within them.

Privacy: computed from real rows without noise; internal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cloister.arrays import Integers
from cloister.evaluation.marginals import Marginals, compare_marginals
from cloister.evaluation.relations import UnitMeasures, compare_mixed, compare_units
from cloister.evaluation.units import PERSONS, with_persons
from cloister.schema.domain import Table
from cloister.schema.relations import Database, Schema


@dataclass(frozen=True)
class PersonColumns:
    """The column that names persons, their attributes, and the most rows that one may have.

    Or groups of rows that share a key; ``name`` is what figures call them.
    """

    key: str
    attributes: tuple[str, ...]
    most_rows: int
    name: str = "persons"


@dataclass(frozen=True)
class Spread:
    """How much an attribute varies within a person, on real and on synthetic rows; 0: not at all.

    Of numbers, the standard deviation within persons over that of all rows; of others, the share of
    pairs of rows of one person that differ. None where no person has two rows.
    """

    attribute: str
    real: float | None
    synthetic: float | None

    @property
    def difference(self) -> float:
        """The absolute difference; 0 where one of them has none."""
        if self.real is None or self.synthetic is None:
            return 0.0
        return abs(self.real - self.synthetic)


@dataclass(frozen=True)
class PersonMeasures:
    """Persons of a real and of a synthetic table.

    ``units`` compares the rows of one person; ``several`` are the synthetic persons of two rows or
    more, ``broken`` those of them whose rows disagree on an attribute of the person,
    ``real_broken`` the same of real ones.
    """

    real: int
    synthetic: int
    units: UnitMeasures
    several: int
    broken: int
    real_broken: int
    marginals: tuple[Marginals, ...]
    spreads: tuple[Spread, ...]
    name: str = "persons"

    def metrics(self) -> dict[str, float]:
        """One number for each measure."""
        figures = {f"{self.name}.{name}": figure for name, figure in self.units.metrics().items()}
        figures |= {
            f"{self.name}.synthetic_for_each_real": self.synthetic / max(self.real, 1),
            f"{self.name}.of_several_rows": float(self.several),
            f"{self.name}.broken_attributes": float(self.broken),
        }
        figures |= {
            f"{self.name}.marginals.{way.ways}_way.half_l1": way.half_l1 for way in self.marginals
        }
        if self.spreads:
            worst = max(spread.difference for spread in self.spreads)
            figures[f"{self.name}.spread_within.largest_difference"] = worst
        return figures

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, fit for JSON."""
        return {
            "real": self.real,
            "synthetic": self.synthetic,
            "synthetic_of_several_rows": self.several,
            "synthetic_with_broken_attributes": self.broken,
            "real_with_broken_attributes": self.real_broken,
            "marginals": [way.to_dict() for way in self.marginals],
            "spread_within": [
                {"attribute": s.attribute, "real": s.real, "synthetic": s.synthetic}
                for s in self.spreads
            ],
        }


def compare_persons(real: Table, synthetic: Table, columns: PersonColumns) -> PersonMeasures:
    """The measures of the persons of two tables."""
    real_persons, synthetic_persons = _Grouped(real, columns), _Grouped(synthetic, columns)
    databases = [_with_persons(table, columns) for table in (real, synthetic)]
    apart = {*columns.attributes, columns.key}
    varying = [name for name in real.domain.modelled if name not in apart]
    across = compare_mixed(real, synthetic, columns.attributes, varying, (2,))
    return PersonMeasures(
        real_persons.persons,
        synthetic_persons.persons,
        compare_units(databases[0], databases[1], databases[0].schema.keys[0], across),
        int((synthetic_persons.counts > 1).sum()),
        synthetic_persons.broken(),
        real_persons.broken(),
        compare_marginals(*(each.tables[PERSONS].select(columns.attributes) for each in databases))[
            :2
        ]
        if columns.attributes
        else (),
        tuple(
            Spread(name, real_persons.spread(name), synthetic_persons.spread(name))
            for name in varying
        ),
        columns.name,
    )


def _with_persons(rows: Table, columns: PersonColumns) -> Database:
    """The rows without the attributes of their persons, and a table of these."""
    database = Database(Schema({"rows": rows.domain}), {"rows": rows})
    return with_persons(database, columns.key, columns.most_rows, columns.attributes)


class _Grouped:
    """The rows of a table by person: ``person`` (rows,), ``first`` (persons,) row of each."""

    def __init__(self, rows: Table, columns: PersonColumns) -> None:
        self._rows, self._columns = rows, columns
        keys = rows.codes[columns.key]
        _, self.first, self.person = np.unique(keys, return_index=True, return_inverse=True)
        self.persons = len(self.first)
        self.counts = np.bincount(self.person)

    def broken(self) -> int:
        """Persons whose rows disagree on an attribute of the person."""
        wrong = np.zeros(self.persons, dtype=bool)
        for name in self._columns.attributes:
            codes = self._rows.codes[name]
            wrong[self.person[codes != codes[self.first][self.person]]] = True
        return int(wrong.sum())

    def spread(self, name: str) -> float | None:
        """How much an attribute varies within a person; see `Spread`."""
        if self._rows.domain[name].kind == "numeric":
            return self._deviation(name)
        return self._differing(self._rows.codes[name])

    def _deviation(self, name: str) -> float | None:
        numbers = self._rows.comparable(name)
        known = ~np.isnan(numbers)
        person, values = self.person[known], numbers[known]
        counts = np.bincount(person, minlength=self.persons)
        free = int(np.maximum(counts - 1, 0).sum())
        total = float(values.std()) if len(values) else 0.0
        if not free or not total:
            return None
        means = np.bincount(person, values, self.persons) / np.maximum(counts, 1)
        return float(np.sqrt(np.square(values - means[person]).sum() / free) / total)

    def _differing(self, codes: Integers) -> float | None:
        pairs = float((self.counts * (self.counts - 1.0)).sum())
        if not pairs:
            return None
        _, alike = np.unique(np.stack([self.person, codes]), axis=1, return_counts=True)
        return 1.0 - float((alike * (alike - 1.0)).sum()) / pairs
