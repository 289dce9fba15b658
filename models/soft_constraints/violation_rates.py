"""How often rows violate constraints with the rows of a reference, and how often kept rows violate with each other.

Rows that agree on the attributes of a constraint count alike, so that each different tuple is
counted once; constraints on the same attributes share the tuples. Exact, by
:mod:`cloister.constraints.counting.violations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cloister.constraints import DenialConstraint, Partners, Tuples, bind
from cloister.schema.domain import Table

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]

FINENESS = 1 << 20


@dataclass(frozen=True)
class TuplesOf:
    """The tuples of one table in any attributes, each made once."""

    table: Table
    _made: dict[tuple[str, ...], Tuples] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, attributes: Sequence[str]) -> Tuples:
        names = tuple(sorted(attributes))
        if names not in self._made:
            self._made[names] = Tuples.of(self.table, names)
        return self._made[names]


def shares_against(
    constraints: Sequence[DenialConstraint], rows: TuplesOf, reference: TuplesOf
) -> Iterator[Numbers]:
    """For each constraint, the share of reference rows with which each row violates it.

    Shape (rows,).
    """
    for constraint in constraints:
        own, others = rows[constraint.attributes], reference[constraint.attributes]
        found = Partners.of(constraint, own.table, others.table).count(others.sums())
        whole = reference.table.rows if constraint.arity == 2 else 1
        yield (found / whole)[own.of_row]


def fine(keep: Numbers) -> Counts:
    """Probabilities (n,) as whole numbers of 1 / FINENESS."""
    return np.rint(keep * FINENESS).astype(np.int64)


@dataclass(frozen=True)
class Violating:
    """The violations of one constraint among rows (n,) that are kept with some probability each."""

    constraint: DenialConstraint
    tuples: Tuples
    partners: Partners
    itself: NDArray[np.bool_]

    @classmethod
    def of(cls, constraint: DenialConstraint, rows: TuplesOf) -> Violating:
        """Made ready to be counted under any probabilities."""
        tuples = rows[constraint.attributes]
        table = tuples.table
        itself = bind(constraint, table.domain).violated(table, table)
        return cls(constraint, tuples, Partners.of(constraint, table, table), itself)

    def expected(self, keep: Counts) -> Numbers:
        """The expected violations (n,) that each row is kept in, as a share of those that kept rows could be in.

        ``keep`` (n,) are probabilities in whole numbers of 1 / FINENESS.
        """
        itself = np.where(self.itself[self.tuples.of_row], keep, 0)
        if self.constraint.arity == 1:
            return itself / keep.sum()
        met = self.partners.count(self.tuples.sums(keep))[self.tuples.of_row] - itself
        chances = keep.astype(np.float64)
        return chances * met / (chances.sum() ** 2 - chances @ chances)
