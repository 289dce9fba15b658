"""Conjunctions of predicates on a pair of rows, sorted by the rows that they compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cloister.constraints.binding import BoundPredicate, Operand
from cloister.constraints.denial import Op

_SIGNS = {Op.LT: 1, Op.EQ: 2, Op.LE: 3, Op.GT: 4, Op.NE: 5, Op.GE: 6}
_OPS = {signs: op for op, signs in _SIGNS.items()}


@dataclass(frozen=True)
class Conjunction:
    """Predicates on t1 alone, on t2 alone (written on t1), and across both rows.

    Those across have t1 on the left, and there is one for each two columns.
    """

    first: frozenset[BoundPredicate]
    second: frozenset[BoundPredicate]
    across: frozenset[BoundPredicate]
    possible: bool = True

    @classmethod
    def of(cls, predicates: Sequence[BoundPredicate]) -> Conjunction:
        first = frozenset(p for p in predicates if p.rows == {1})
        second = frozenset(p.exchanged for p in predicates if p.rows == {2})
        return cls(first, second, frozenset()).with_across(
            p for p in predicates if len(p.rows) == 2
        )

    @property
    def exchanged(self) -> Conjunction:
        """The same conjunction with the two rows exchanged."""
        across = frozenset(p.exchanged.mirrored for p in self.across)
        return Conjunction(self.second, self.first, across, self.possible)

    def conjoin(self, other: Conjunction) -> Conjunction:
        """The conjunction of both."""
        joined = Conjunction(
            self.first | other.first, self.second | other.second, self.across, self.possible
        )
        return joined.with_across(other.across)

    def with_across(self, predicates: Iterable[BoundPredicate]) -> Conjunction:
        """With further comparisons across both rows.

        Comparisons of the same two columns become one, or the conjunction is impossible.
        """
        merged: dict[tuple[str, str], BoundPredicate] = {}
        possible = self.possible
        for p in (*self.across, *(p if p.left.row == 1 else p.mirrored for p in predicates)):
            assert isinstance(p.right, Operand)
            columns = p.left.attribute, p.right.attribute
            signs = _SIGNS[p.op] & _SIGNS[merged.get(columns, p).op]
            possible &= signs > 0
            merged[columns] = replace(p, op=_OPS.get(signs, p.op))
        return replace(self, across=frozenset(merged.values()), possible=possible)


def either_order(predicates: Sequence[BoundPredicate]) -> tuple[tuple[int, Conjunction], ...]:
    """Signed conjunctions that count the rows with which a row violates, in either order.

    The signed matches of a row as t1 add up to that count.
    """
    forward = Conjunction.of(predicates)
    both = forward.conjoin(forward.exchanged)
    return (
        ((1, forward),) if both == forward else ((1, forward), (1, forward.exchanged), (-1, both))
    )
