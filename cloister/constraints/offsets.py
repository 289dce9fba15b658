"""Offsets of rules, as in ``t.birth + 16 years``, and the numbers that cells are compared by.

Days have 24 hours and begin at midnight in UTC. Months and years are those of the calendar: the day
of the month stays the same, or is the last one of a month that has no such day. So 29 February and
a year are 28 February, 31 January and a month the last day of February. A moment keeps its time of
day. Sums are of whole numbers, so that they are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.errors import ConstraintError
from cloister.schema.attributes import Date, Datetime, Float, Integer
from cloister.schema.columns import Column, Grid
from cloister.schema.ticks import float_decimals
from cloister.schema.written_moments import SECONDS_OF_DAY

_MOST_DAYS = 3_652_425
"""Days of an offset at most: those of 10,000 years, so that sums fit into 64 bits."""

_LARGEST_EXACT = 2**53
"""The number up to which floats hold all whole numbers."""


class OffsetUnit(StrEnum):
    """What an offset counts."""

    ONES = ""
    DAYS = "days"
    MONTHS = "months"
    YEARS = "years"


@dataclass(frozen=True)
class Offset:
    """What is added to a cell: a number, or days, months or years; negative to subtract it."""

    amount: int | float
    unit: OffsetUnit = OffsetUnit.ONES

    def __str__(self) -> str:
        amount, unit = abs(self.amount), str(self.unit)
        words = f"{amount!r} {unit.removesuffix('s') if amount == 1 else unit}".strip()
        return f"{'-' if self.amount < 0 else '+'} {words}"


@dataclass(frozen=True)
class Shift:
    """How the number that a cell is compared by follows from the comparable number of its column.

    That is counted in ``units`` of which a day, where the column has days, has ``day``. The time of
    day is cut off for ``whole_days``; then ``months`` and ``added`` units are added. ``factor`` is
    the number of seconds of a day where a date is compared with a moment.
    """

    units: int
    day: int = 0
    whole_days: bool = False
    months: int = 0
    added: int = 0
    factor: int = 1

    @property
    def is_constant(self) -> bool:
        """Whether the same is added to every value."""
        return not (self.whole_days or self.months)

    def add(self, counted: Integers) -> Integers:
        """The sums (n,) of numbers (n,), both in units."""
        if self.whole_days:
            counted = counted - counted % self.day
        if self.months:
            days, rest = np.divmod(counted, self.day)
            counted = add_months(days, self.months) * self.day + rest
        return counted + self.added

    def of(self, comparable: Floats) -> Floats:
        """The numbers to compare (n,) of comparable numbers (n,); NaN for missing."""
        known = ~np.isnan(comparable)
        numbers = np.full(comparable.shape, np.nan)
        counted = np.rint(comparable[known] * self.units).astype(np.int64)
        numbers[known] = self.add(counted) * self.factor / self.units
        return numbers


def add_months(days: Integers, months: int) -> Integers:
    """The days (n,), counted from 1970, that lie so many months after days (n,)."""
    dates = days.astype("datetime64[D]")
    before = dates.astype("datetime64[M]")
    after = before + months
    first, next_first = ((after + more).astype("datetime64[D]") for more in (0, 1))
    last = next_first - np.timedelta64(1, "D")
    moved = first + (dates - before.astype("datetime64[D]"))
    return np.minimum(moved, last).astype(np.int64)


def shift_of(
    column: Column, offset: Offset | None, whole_day: bool, beside_moment: bool, rule: str
) -> Shift | None:
    """The shift of a cell, which may be compared with a moment; None if it stays as it is.

    Raises:
        ConstraintError: a column of this type has no days, or takes no such offset.
    """
    attribute = column.attribute
    if whole_day and not isinstance(attribute, Datetime):
        raise ConstraintError(
            f"constraint '{rule}': takes the day of '{column.name}' ({attribute.type}), and only "
            "timestamps have a time of day to leave out; leave out 'day of'"
        )
    if offset is not None:
        _require_fitting(column, offset, rule)
    factor = SECONDS_OF_DAY if isinstance(attribute, Date) and beside_moment else 1
    if offset is None and not whole_day and factor == 1:
        return None
    if isinstance(attribute, Date | Datetime):
        units = 10**attribute.places if isinstance(attribute, Datetime) else 1
        day = units * (SECONDS_OF_DAY if isinstance(attribute, Datetime) else 1)
        months, days = _calendar(offset)
        return Shift(units, day, whole_day, months, days * day, factor)
    assert offset is not None
    return _sum(column, offset, rule)


def _calendar(offset: Offset | None) -> tuple[int, int]:
    """The months and the days of an offset of dates."""
    if offset is None:
        return 0, 0
    amount = int(offset.amount)
    if offset.unit is OffsetUnit.DAYS:
        return 0, amount
    return amount * (12 if offset.unit is OffsetUnit.YEARS else 1), 0


def _require_fitting(column: Column, offset: Offset, rule: str) -> None:
    attribute = column.attribute
    adds = f"constraint '{rule}': adds {str(offset).removeprefix('+ ')} to '{column.name}'"
    if not isinstance(attribute, Integer | Float | Date | Datetime):
        raise ConstraintError(
            f"{adds} ({attribute.type}), and offsets are of numbers, dates and timestamps; compare "
            "it as it is"
        )
    if isinstance(attribute, Integer | Float):
        if offset.unit is not OffsetUnit.ONES:
            raise ConstraintError(
                f"{adds} ({attribute.type}), whose offsets are plain numbers; leave out "
                f"'{offset.unit}'"
            )
        return
    if offset.unit is OffsetUnit.ONES:
        raise ConstraintError(
            f"{adds} ({attribute.type}); say of what: days, months or years, as in "
            f"t.{column.name} + 5 days"
        )
    days = {OffsetUnit.DAYS: 1, OffsetUnit.MONTHS: 31, OffsetUnit.YEARS: 366}[offset.unit]
    if offset.amount != int(offset.amount) or abs(offset.amount) * days > _MOST_DAYS:
        raise ConstraintError(
            f"{adds}; write a whole number of days, months or years, less than 10,000 years"
        )


def _sum(column: Column, offset: Offset, rule: str) -> Shift:
    """The shift of a number, in units of the last decimal place of number or offset."""
    exponent: Any = Decimal(repr(offset.amount)).as_tuple().exponent
    attribute = column.attribute
    places = float_decimals(attribute) if isinstance(attribute, Float) else 0
    units = 10 ** max(places, -exponent, 0)
    assert isinstance(column, Grid)
    ends = column.comparable(np.array([0, *range(column.steps - 1, column.values)]))
    largest = float(np.abs(ends).max()) + abs(offset.amount)
    if largest * units > _LARGEST_EXACT:
        raise ConstraintError(
            f"constraint '{rule}': sums of '{column.name}' and {abs(offset.amount)!r} may have "
            "more than 15 digits, too many to be exact; declare narrower bounds or fewer decimals"
        )
    return Shift(units, added=round(Decimal(repr(offset.amount)) * units))
