"""Denial constraints: no row, or no pair of rows, may satisfy all predicates at once.

Source: Kamino (Ge, Mohapatra, He, Ilyas; VLDB 2021), section 2.1. A constraint over two rows is
violated by an unordered pair if either order of the pair satisfies all predicates. Missing values
compare as in SQL: no comparison holds on them, and ``is missing`` does.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

Constant = str | bool | int | float | dt.date | dt.datetime


class Op(StrEnum):
    """A comparison, written as in SQL."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def mirrored(self) -> Op:
        """The equivalent comparison with its two sides exchanged."""
        return _MIRRORED[self]

    @property
    def is_order(self) -> bool:
        """Whether the comparison needs an order of the values."""
        return self not in (Op.EQ, Op.NE)


NEGATED = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT}
"""The comparison that holds on two values where another does not."""

_MIRRORED = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}


@dataclass(frozen=True)
class Cell:
    """An attribute of the first (1) or second (2) row of a pair."""

    row: int
    attribute: str


@dataclass(frozen=True)
class Predicate:
    """``left op right``; the right side is a cell, a constant, or None for ``missing``.

    ``=`` None stands for ``is missing``, ``!=`` None for ``is not missing``.
    """

    left: Cell
    op: Op
    right: Cell | Constant | None

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The one or two cells that are compared."""
        return (self.left, self.right) if isinstance(self.right, Cell) else (self.left,)

    @property
    def negated(self) -> Predicate:
        """The predicate that holds where this one does not, missing values apart."""
        return Predicate(self.left, NEGATED[self.op], self.right)


@dataclass(frozen=True)
class KnownFigure:
    """What is known of a soft constraint without the data: a ``weight`` or a ``rate``.

    The weight is the cost of one violation in nats, the rate a share of pairs of rows, or of rows.
    """

    weight: float | None = None
    rate: float | None = None
    provenance: str | None = None


@dataclass(frozen=True)
class DenialConstraint:
    """A named rule ``not (P1 and ... and Pm)`` over one or two rows.

    Hard (no violation) or soft, with a ``known`` weight or rate or one that is to be measured.
    """

    name: str
    predicates: tuple[Predicate, ...]
    hard: bool = True
    known: KnownFigure | None = None

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that take part, each once, in order of appearance."""
        return tuple(dict.fromkeys(cell.attribute for p in self.predicates for cell in p.cells))

    @property
    def arity(self) -> int:
        """1 for a rule on single rows, 2 for a rule on pairs."""
        return len({cell.row for p in self.predicates for cell in p.cells})
