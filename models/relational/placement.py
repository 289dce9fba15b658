"""Hard constraints across a foreign key, enforced by changing who refers to whom.

Rows that violate one exchange parents with others, which keeps all degrees. A row that no exchange
helps moves to a free place of a parent that it fits, else is left out. Only drawn rows and released
facts are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.constraints import Op, Operand, holds
from cloister.constraints.across import AcrossConstraint
from cloister.schema.domain import Table
from cloister.schema.relations import Schema

_EXCHANGES = 60
"""Most rounds of exchanges; what part of the violations a round leaves depends on the rule."""

_POOL = 2_000
"""Least number of rows among which a round looks for partners."""

_STALLED = 0.98
"""A round that leaves more than this part of the violations is the last."""

_MIXINGS = 10
"""Rounds of random exchanges that hide the order in which a part was matched."""

_SORTS = 4
"""Random parts that are matched in order, each with the rows that still violate."""

_SORTED_WITH = 4
"""Rows of such a part for each that violates."""

_TRIES = 40
"""Random parents, or rows, tried for each row before all are searched."""

_MOST_PAIRS = 20_000_000
"""Most pairs that an exhaustive search compares: a few seconds."""


@dataclass(frozen=True, eq=False)
class _Numbers:
    """A side of a predicate: numbers of all rows (1) or all parents (2), or of a constant (0)."""

    side: int
    numbers: Floats

    @classmethod
    def of(cls, operand: Operand | float, tables: Mapping[int, Table]) -> _Numbers:
        """The numbers of a bound operand."""
        if isinstance(operand, Operand):
            return cls(operand.row, operand.of(tables[operand.row]))
        return cls(0, np.array(operand))

    def of_pairs(self, rows: Integers, parents: Integers) -> Floats:
        """The numbers (n,) of some rows with some parents; of a constant itself."""
        return self.numbers[rows if self.side == 1 else parents] if self.side else self.numbers


@dataclass(frozen=True, eq=False)
class Compatibility:
    """Which rows of a foreign key may have which parents.

    ``rules`` compare a row with its parent; on the columns ``shared`` all rows of one parent agree:
    ``_agreed`` (parents,) are the codes, by column, or -1 where a parent has no row.
    """

    schema: Schema
    rows: Table
    parents: Table
    rules: Sequence[AcrossConstraint]
    shared: Sequence[str]
    _agreed: dict[str, Integers] = field(default_factory=dict)

    def fits(self, rows: Integers, parents: Integers) -> Booleans:
        """Whether each row (n,) may have each parent (n,)."""
        good = np.ones(len(rows), dtype=bool)
        for rule in self._compiled:
            broken = np.ones(len(rows), dtype=bool)
            for op, left, right in rule:
                beside = None if right is None else right.of_pairs(rows, parents)
                broken &= holds(op, left.of_pairs(rows, parents), beside)
            good &= ~broken
        for name, values in self._agreed.items():
            wanted = values[parents]
            good &= (wanted == -1) | (wanted == self.rows.codes[name][rows])
        return good

    @cached_property
    def _compiled(self) -> list[list[tuple[Op, _Numbers, _Numbers | None]]]:
        """The predicates of each rule; a row and its parent violate it if all of them hold.

        None on the right stands for ``missing``.
        """
        compiled = []
        for rule in self.rules:
            rows, parents = rule.sides(self.rows, self.parents)
            tables = {1: rows, 2: parents}
            bound = rule.bound(self.schema)
            compiled.append(
                [
                    (
                        each.op,
                        _Numbers.of(each.left, tables),
                        None if each.right is None else _Numbers.of(each.right, tables),
                    )
                    for each in bound.predicates
                ]
            )
        return compiled

    def agree(self, owners: Integers, rng: np.random.Generator) -> None:
        """Set what the rows of each parent agree on: the value of most of them; -1 without rows."""
        for name in self.shared:
            values = np.full(self.parents.rows, -1)
            pairs = np.stack([owners, self.rows.codes[name]])
            (above, codes), counts = np.unique(pairs, axis=1, return_counts=True)
            order = np.lexsort((rng.random(len(counts)), counts))
            values[above[order]] = codes[order]
            self._agreed[name] = values

    def agree_with(self, rows: Integers, parents: Integers) -> None:
        """Set what parents (n,) agree on to the values of the rows (n,) that they got."""
        for name, values in self._agreed.items():
            values[parents] = self.rows.codes[name][rows]

    @cached_property
    def ordered(self) -> tuple[Floats, Floats] | None:
        """Numbers of rows and of parents, if the only rule is that no row is less than its parent.

        None for other rules. Missing numbers violate nothing: a row's is above all parents, a
        parent's below all rows.
        """
        if self.shared or len(self._compiled) != 1 or len(self._compiled[0]) != 1:
            return None
        ((op, left, right),) = self._compiled[0]
        if right is None or not op.is_order or {left.side, right.side} != {1, 2}:
            return None
        op, row, parent = (op, left, right) if left.side == 1 else (op.mirrored, right, left)
        sign = 1 if op in (Op.LT, Op.LE) else -1
        # strictly after: the next number that a float can hold
        numbers = sign * parent.numbers
        numbers = np.nextafter(numbers, np.inf) if op in (Op.LE, Op.GE) else numbers
        return np.nan_to_num(sign * row.numbers, nan=np.inf), np.nan_to_num(numbers, nan=-np.inf)


@dataclass(frozen=True, eq=False)
class Placement:
    """Changes who refers to whom until each row is compatible with its parent.

    At most ``most`` rows have the same parent.
    """

    compatible: Compatibility
    most: int
    rng: np.random.Generator

    def settle(self, owners: Integers) -> Integers:
        """Owners (rows,), each a parent's row number, changed until all constraints hold.

        -1 of rows that are left out.
        """
        owners = owners.copy()
        self.compatible.agree(owners, self.rng)
        waiting = self._moved(owners, self._sorted(owners, self._exchanged(owners)))
        owners[waiting] = -1
        return owners

    def _exchanged(self, owners: Integers) -> Integers:
        """Exchange parents of rows that violate with others; the rows that still violate."""
        everyone = np.arange(len(owners))
        waiting = everyone[~self.compatible.fits(everyone, owners)]
        for _ in range(_EXCHANGES):
            if not len(waiting):
                break
            number = min(max(len(waiting), _POOL), len(owners))
            partners = self.rng.choice(len(owners), number, replace=False)
            self._exchange(
                owners, self.rng.permutation(np.union1d(waiting, partners)), worsening=-1
            )
            before, waiting = len(waiting), waiting[~self.compatible.fits(waiting, owners[waiting])]
            if len(waiting) > _STALLED * before:
                break
        return waiting

    def _sorted(self, owners: Integers, waiting: Integers) -> Integers:
        """Match random parts in order, which satisfies the most rows; returns those that violate.

        For a single rule that orders a row and its parent: each parent gets the least row that is
        not below it. Rows of the part then exchange parents at random where both still fit.
        """
        ordered = self.compatible.ordered
        for _ in range(_SORTS):
            if ordered is None or not len(waiting):
                break
            number = min(_SORTED_WITH * len(waiting), len(owners))
            part = np.union1d(waiting, self.rng.choice(len(owners), number, replace=False))
            mixed = self.rng.permutation(part)
            owners[mixed] = owners[mixed][_in_order(ordered[0][mixed], ordered[1][owners[mixed]])]
            for _ in range(_MIXINGS):
                self._exchange(owners, self.rng.permutation(part), worsening=0)
            waiting = part[~self.compatible.fits(part, owners[part])]
        return waiting

    def _exchange(self, owners: Integers, pool: Integers, worsening: int) -> None:
        """Exchange the parents of random pairs if that adds at most ``worsening`` violations."""
        half = len(pool) // 2
        first, second = pool[:half], pool[half : 2 * half]
        before = self._violations(first, owners[first]) + self._violations(second, owners[second])
        after = self._violations(first, owners[second]) + self._violations(second, owners[first])
        better = after <= before + worsening
        first, second = first[better], second[better]
        owners[first], owners[second] = owners[second], owners[first]

    def _violations(self, rows: Integers, parents: Integers) -> Integers:
        return (~self.compatible.fits(rows, parents)).astype(np.int64)

    def _moved(self, owners: Integers, waiting: Integers) -> Integers:
        """Move rows to free places of parents that they fit; returns the rows that fit none."""
        degrees = np.bincount(owners, minlength=self.compatible.parents.rows)
        free = np.flatnonzero(degrees < self.most)
        for _ in range(_TRIES):
            if not (len(waiting) and len(free)):
                return waiting
            wanted = self.rng.choice(free, len(waiting))
            waiting = self._admit(owners, degrees, waiting, wanted)
        unplaced: list[int] = []
        for index, row in enumerate(waiting.tolist()):
            free = np.flatnonzero(degrees < self.most)
            if (index + 1) * len(free) > _MOST_PAIRS:
                return np.array([*unplaced, *waiting[index:].tolist()], dtype=np.int64)
            able = free[self.compatible.fits(np.full(len(free), row), free)]
            if len(able):
                self._admit(owners, degrees, np.array([row]), self.rng.choice(able, 1))
            else:
                unplaced.append(row)
        return np.array(unplaced, dtype=np.int64)

    def _admit(
        self, owners: Integers, degrees: Integers, rows: Integers, wanted: Integers
    ) -> Integers:
        """Move the rows that fit to the parents they want, one to each; returns the rest."""
        good = self.compatible.fits(rows, wanted) & (degrees[wanted] < self.most)
        _, first = np.unique(wanted[good], return_index=True)
        chosen = np.flatnonzero(good)[first]
        np.subtract.at(degrees, owners[rows[chosen]], 1)
        np.add.at(degrees, wanted[chosen], 1)
        owners[rows[chosen]] = wanted[chosen]
        self.compatible.agree_with(rows[chosen], wanted[chosen])
        return np.delete(rows, chosen)


def _in_order(rows: Floats, parents: Floats) -> Integers:
    """A parent (n,) for each row, such that as many rows as possible are not below theirs."""
    by_row, by_parent = np.argsort(rows, kind="stable"), np.argsort(parents, kind="stable")
    numbers, bounds = rows[by_row].tolist(), parents[by_parent].tolist()
    owners, position = np.full(len(rows), -1), 0
    for row, number in zip(by_row.tolist(), numbers, strict=True):
        if number >= bounds[position]:
            owners[row] = by_parent[position]
            position += 1
    owners[owners == -1] = by_parent[position:]
    return owners
