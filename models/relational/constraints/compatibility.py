"""Which rows may have which parents, by the constraints across a foreign key."""

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

    def at(self, rows: Integers, parents: Integers) -> Floats:
        """The numbers (n,) of some rows with some parents; of a constant itself."""
        return self.numbers[rows if self.side == 1 else parents] if self.side else self.numbers


@dataclass(frozen=True, eq=False)
class Compatibility:
    """Rows and parents of one foreign key, and what must hold of a row and its parent.

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
                beside = None if right is None else right.at(rows, parents)
                broken &= holds(op, left.at(rows, parents), beside)
            good &= ~broken
        for name, values in self._agreed.items():
            wanted = values[parents]
            good &= (wanted == -1) | (wanted == self.rows.codes[name][rows])
        return good

    @cached_property
    def _compiled(self) -> list[list[tuple[Op, _Numbers, _Numbers | None]]]:
        """The predicates of each rule: a row and its parent of which all hold violate it.

        None on the right stands for ``missing``.
        """
        found = []
        for rule in self.rules:
            own, above = rule.sides(self.rows, self.parents)
            tables = {1: own, 2: above}
            bound = rule.bound(self.schema)
            found.append(
                [
                    (
                        each.op,
                        _Numbers.of(each.left, tables),
                        None if each.right is None else _Numbers.of(each.right, tables),
                    )
                    for each in bound.predicates
                ]
            )
        return found

    def agree(self, owners: Integers, rng: np.random.Generator) -> None:
        """Fix what the rows of a parent agree on: a value of one of them, or -1 where it has none.

        That of a row at random, so that values are as frequent as before.
        """
        first = rng.permutation(len(owners))
        for name in self.shared:
            values = np.full(self.parents.rows, -1)
            values[owners[first]] = self.rows.codes[name][first]
            self._agreed[name] = values

    def agree_with(self, rows: Integers, parents: Integers) -> None:
        """Let parents (n,) agree on what the rows (n,) have that each got."""
        for name, values in self._agreed.items():
            values[parents] = self.rows.codes[name][rows]

    @cached_property
    def ordered(self) -> tuple[Floats, Floats] | None:
        """Numbers of rows and of parents, if all that is to hold is that none is before its parent.

        None if there is more. Missing numbers violate nothing: of a row, one is after all parents;
        of a parent, before all rows.
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
