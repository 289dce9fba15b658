"""How often rows violate constraints: pairs drawn at random, or each row within a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from cloister.arrays import Array, Booleans, Integers
from cloister.constraints import BoundConstraint, DenialConstraint, bind
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Query, TableRows
from cloister.schema.domain import Table
from cloister.schema.joint_counts import BLOCK_ROWS, blocks

MOST_PAIRS = 2**22
"""Pairs of a matching at most: their codes, fetched at once, take 32 MiB in four columns of a byte.

The error of a rate is then at most 0.0003, and a hundredth of it at rates above 0.0025. Rows beyond
these, at 10^8 nine in ten, need not be ordered.
"""


@dataclass(frozen=True)
class ViolatingPairs(Query[TableRows, Sensitivity, Integers]):
    """Violating pairs of each constraint, added up over some random matchings of the rows.

    A matching has half as many pairs as rows, and at most ``most``. Of a constraint on single rows:
    violating rows among the first of each pair.

    Proof: two neighbouring tables can be coupled so that each of a unit's rows changes one pair of
    a matching. A row that is added takes the place of a row that is then left over, or forms a pair
    with the one that was, or is itself left over; a row that is replaced is exchanged in its place.
    So each count changes by at most ``max_rows`` a matching, under either relation. A divergence
    between mixtures that are coupled is at most the worst between coupled parts.
    """

    name: ClassVar[str] = "violating pairs"
    constraints: tuple[DenialConstraint, ...]
    matchings: int = 1
    most: int = MOST_PAIRS

    def pairs(self, rows: int) -> int:
        """Pairs of a matching of so many rows."""
        return min(rows // 2, self.most)

    def request(self) -> Mapping[str, Any]:
        return {"of": [constraint.name for constraint in self.constraints]}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return Sensitivity.box(len(self.constraints), neighbours.max_rows * self.matchings)

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:
        names = [name for constraint in self.constraints for name in constraint.attributes]
        table = rows.table.select(names)
        counts = [self._of_a_matching(table, source) for _ in range(self.matchings)]
        return np.sum(counts, axis=0, dtype=np.int64)

    def outcome(self, noisy: Array) -> Integers:
        return noisy

    def _of_a_matching(self, table: Table, source: NoiseSource) -> Integers:
        half = self.pairs(table.rows)
        order = source.ordered_sample(table.rows, 2 * half)
        firsts, seconds = table.take(order[:half]), table.take(order[half:])
        bound = [bind(constraint, table.domain) for constraint in self.constraints]
        counts = np.zeros(len(bound), dtype=np.int64)
        for pairs in blocks(half, BLOCK_ROWS):
            first, second = firsts.take(pairs), seconds.take(pairs)
            counts += [int(_violating(rule, first, second).sum()) for rule in bound]
        return counts


def _violating(rule: BoundConstraint, first: Table, second: Table) -> Booleans:
    """Which pairs violate a rule, in either order; of a rule on single rows, which first rows."""
    mask = rule.violation_mask(first, second)
    return mask if rule.arity == 1 else mask | rule.violation_mask(second, first)


@dataclass(frozen=True)
class ViolationMatrix(Query[TableRows, Sensitivity, Integers]):
    """Violations (sample, constraints) of each constraint by each row of a Poisson sample.

    Rows are sampled with probability ``rate`` each; beyond ``sample`` of them, random ones are
    dropped. Each row gets a random line of the matrix, and lines without a row are zero.

    Proof: two neighbouring tables can be coupled so that adding a row fills an empty line or takes
    over another row's line; this needs the lines to be random. That line changes by at most
    sample - 1 for each constraint on pairs and 1 for each on rows; each other line by at most 1 for
    each constraint on pairs. A row replaced takes over its own line. A unit of m rows, one after
    the other, so changes at most m lines by that much, as no row has more than sample - 1
    violations of a pair or less than none, and the other lines by m at most. Sampling is not
    counted as an amplification.

    Source: Kamino Algorithm 5, lines 3 to 6, and section 5.
    """

    name: ClassVar[str] = "violation matrix"
    constraints: tuple[DenialConstraint, ...]
    sample: int
    rate: Fraction

    def request(self) -> Mapping[str, Any]:
        return {"of": [constraint.name for constraint in self.constraints]}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """How far a unit of m = ``max_rows`` rows can change the matrix, in violations.

        By the proof above: min(m, sample) lines change by at most sample - 1 in each column of a
        constraint on pairs and by 1 in each of one on rows; each other line only in the columns of
        pairs, by at most min(m, sample - 1).
        """
        pairs = sum(constraint.arity == 2 for constraint in self.constraints)
        alone, most = len(self.constraints) - pairs, self.sample - 1
        lines = min(neighbours.max_rows, self.sample)
        untaken, shift = self.sample - lines, min(neighbours.max_rows, most)
        return Sensitivity(
            cells=self.sample * pairs + lines * alone,
            step=max(most, neighbours.max_rows),  # from which accountants read a unit's rows
            l1=pairs * (lines * most + untaken * shift) + alone * lines,
            l2_squared=pairs * (lines * most**2 + untaken * shift**2) + alone * lines,
        )

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:
        """The matrix, flat (sample x constraints,), in violations; secret as all exact answers.

        ``source`` draws which rows are sampled, which are dropped beyond ``sample``, and the line
        of each: the proof needs all three to be secret and random.
        """
        from cloister.constraints.counting import violations_per_row

        names = [name for constraint in self.constraints for name in constraint.attributes]
        chosen = np.flatnonzero(source.bernoulli(self.rate, rows.table.rows))
        sample = rows.table.select(names).take(
            chosen[source.permutation(len(chosen))][: self.sample]
        )
        matrix = np.zeros((self.sample, len(self.constraints)), dtype=np.int64)
        lines = source.permutation(self.sample)[: sample.rows]
        matrix[lines] = np.stack([violations_per_row(c, sample) for c in self.constraints], axis=1)
        return matrix.ravel()

    def outcome(self, noisy: Array) -> Integers:
        return noisy.reshape(self.sample, len(self.constraints))
