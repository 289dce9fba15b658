"""Exact numbers of violations of any denial constraint on one or two rows, without making pairs.

A pair violates in one direction if all predicates hold for (t1, t2). With V the pairs (i, j) of
different rows that do, an unordered pair is counted once by |V| - |V and exchanged V| / 2, and the
second set is a conjunction as well. :mod:`cloister.constraints.matching` counts the matches of a
conjunction. Rows that agree on all attributes of a constraint are counted together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.constraints.denial import BoundConstraint, DenialConstraint, ViolationReport, bind
from cloister.constraints.matching import Conjunction, Matching, Tuples, either_order
from cloister.schema.domain import Table

_MERGED_ROWS = 2**22
"""Different rows of blocks from which on those of several are put together: 32 MiB a column."""


def count_violations(constraint: DenialConstraint, table: Table) -> int:
    """Number of rows (one-row rules) or unordered pairs of rows (two-row rules) in violation.

    Raises:
        ConstraintError: the constraint does not fit the domain of the table.
    """
    bound, columns = bind(constraint, table.domain), table.select(constraint.attributes)
    if bound.arity == 1:
        return int(columns.total(partial(_count_violating, bound)))
    rows, weights = _count_tuples(columns)
    alone = int(weights @ bound.violation_mask(rows, rows))
    forward = Conjunction.of(bound.predicates)
    directed = int(weights @ Matching.of(forward, rows, rows).count(weights)) - alone
    both = forward.conjoin(forward.exchanged)
    if both == forward:
        return directed // 2
    return directed - (int(weights @ Matching.of(both, rows, rows).count(weights)) - alone) // 2


def _count_tuples(table: Table) -> tuple[Table, Integers]:
    """The different rows of a table, and how many rows are equal to each (k,).

    Memory is that of some times the different ones, and of a block.
    """
    counted, most = list[tuple[Table, Integers]](), _MERGED_ROWS
    for block in table.each(_count_block):
        counted.append(block)
        if sum(rows.rows for rows, _ in counted) > most:
            counted = [_merge(counted)]
            most = max(2 * counted[0][0].rows, _MERGED_ROWS)
    return _merge(counted) if len(counted) > 1 else counted[0]


def _merge(counted: Sequence[tuple[Table, Integers]]) -> tuple[Table, Integers]:
    """The different rows of several tables, and how many rows are equal to each (k,)."""
    rows = Table.concatenate(block for block, _ in counted)
    together = Tuples.of(rows, rows.domain.names)
    return together.table, together.sums(np.concatenate([counts for _, counts in counted]))


def _count_block(block: Table) -> tuple[Table, Integers]:
    tuples = Tuples.of(block, block.domain.names)
    return tuples.table, tuples.sums()


def _count_violating(bound: BoundConstraint, block: Table) -> Integers:
    """The number () of rows that break a rule on one row."""
    return np.asarray(np.count_nonzero(bound.violation_mask(block, block)))


def violations_per_row(constraint: DenialConstraint, table: Table) -> Integers:
    """Number of violating pairs that each row is in, int64 (n,); 0 or 1 for one-row rules.

    Raises:
        ConstraintError: the constraint does not fit the domain of the table.
    """
    bound = bind(constraint, table.domain)
    if bound.arity == 1:
        return bound.violation_mask(table, table).astype(np.int64)
    tuples = Tuples.of(table, constraint.attributes)
    rows = tuples.table
    counts = Partners.of(constraint, rows, rows).count(tuples.sums()) - bound.violation_mask(
        rows, rows
    )
    return counts[tuples.of_row]


def satisfying(constraints: Iterable[DenialConstraint], table: Table) -> Booleans:
    """Mask (n,) of the rows that are in no violation of any of the constraints."""
    satisfied = np.ones(table.rows, dtype=bool)
    for constraint in constraints:
        satisfied &= violations_per_row(constraint, table) == 0
    return satisfied


@dataclass(frozen=True)
class Partners:
    """The rows of a second table (m,) with which each row of a first (n,) violates a constraint.

    In either order. Under a one-row rule, the only partner of a violating row is itself.
    """

    terms: tuple[tuple[int, Matching], ...]
    alone: Booleans | None

    @classmethod
    def of(cls, constraint: DenialConstraint, first: Table, second: Table) -> Partners:
        """The partners, prepared for counting under any weights of the second table's rows.

        Raises:
            ConstraintError: the constraint does not fit the domain of the tables.
        """
        bound = bind(constraint, first.domain)
        if bound.arity == 1:
            return cls((), bound.violation_mask(first, first))
        signed = either_order(bound.predicates)
        return cls(
            tuple((sign, Matching.of(conjunction, first, second)) for sign, conjunction in signed),
            None,
        )

    def count(self, weights: Integers) -> Integers:
        """The sum (n,) of the weights (m,) of each row's partners."""
        if self.alone is not None:
            return self.alone.astype(np.int64)
        return np.sum([sign * matching.count(weights) for sign, matching in self.terms], axis=0)


def violation_share(constraint: DenialConstraint, table: Table) -> Fraction:
    """Violations as a share of all n rows, or of all n (n - 1) / 2 unordered pairs.

    0 if there are no rows or pairs.
    """
    return _share(constraint, count_violations(constraint, table), table.rows)


def violation_reports(
    constraints: Iterable[DenialConstraint], table: Table
) -> tuple[ViolationReport, ...]:
    """Violations of each constraint, in order."""
    counted = ((constraint, count_violations(constraint, table)) for constraint in constraints)
    return tuple(
        ViolationReport(c.name, c.hard, violations, float(100 * _share(c, violations, table.rows)))
        for c, violations in counted
    )


def _share(constraint: DenialConstraint, violations: int, rows: int) -> Fraction:
    whole = rows if constraint.arity == 1 else rows * (rows - 1) // 2
    return Fraction(violations, whole) if whole else Fraction(0)
