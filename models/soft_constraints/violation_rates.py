"""How often rows violate constraints with the rows of a reference, or kept rows with each other.

Rows that agree on the attributes of a constraint count alike, so that each different tuple is
counted once; constraints on the same attributes share the tuples. Exact, by
:mod:`cloister.constraints.counting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.constraints import DenialConstraint, bind
from cloister.constraints.counting import Partners
from cloister.constraints.matching import Tuples
from cloister.schema.domain import Table

_FINENESS = 1 << 20
"""Probabilities are counted in whole numbers of 1 / this, so that sums of them are exact."""


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
) -> Iterator[Floats]:
    """For each constraint, the share of reference rows with which each row violates it.

    Shape (rows,).
    """
    for constraint in constraints:
        own, others = rows[constraint.attributes], reference[constraint.attributes]
        found = Partners.of(constraint, own.table, others.table).count(others.sums())
        whole = reference.table.rows if constraint.arity == 2 else 1
        yield (found / whole)[own.of_row]


def quantize(keep: Floats) -> Integers:
    """Probabilities (n,) as whole numbers of 2^-20."""
    return np.rint(keep * _FINENESS).astype(np.int64)


@dataclass(frozen=True)
class Violating:
    """The violations of one constraint among rows (n,), each of which is kept by chance."""

    constraint: DenialConstraint
    tuples: Tuples
    partners: Partners
    itself: Booleans

    @classmethod
    def of(cls, constraint: DenialConstraint, rows: TuplesOf) -> Violating:
        """Made ready to be counted under any probabilities."""
        tuples = rows[constraint.attributes]
        table = tuples.table
        itself = bind(constraint, table.domain).violation_mask(table, table)
        return cls(constraint, tuples, Partners.of(constraint, table, table), itself)

    def expected_violations(self, keep: Integers) -> Floats:
        """The expected violations (n,) of each row, as a share of the expected pairs of kept rows.

        Of a constraint on single rows: as a share of the expected kept rows. ``keep`` (n,) are the
        probabilities of keeping a row, in whole numbers of 2^-20.
        """
        itself = np.where(self.itself[self.tuples.of_row], keep, 0)
        if self.constraint.arity == 1:
            return itself / keep.sum()
        met = self.partners.count(self.tuples.sums(keep))[self.tuples.of_row] - itself
        chances = keep.astype(np.float64)
        return chances * met / (chances.sum() ** 2 - chances @ chances)
