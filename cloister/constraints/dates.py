"""Dates in several columns: ``t.year, t.month, t.day is a date``, with or without the year.

The sentence stands for denials of the days that no month has. They are of single values, so that
they say nothing of a part that is missing, or special and so unknown. Without a year, 29 February
is a date. Months are numbers, or English names or what these begin with, whatever the language of
the machine.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass

from cloister.constraints.denial import Cell, Constant, DenialConstraint, Op, Predicate
from cloister.constraints.text import unquote
from cloister.errors import ConstraintError
from cloister.schema.columns import Column, Grid, Listed
from cloister.schema.declarations import BARE_NAME
from cloister.schema.domain import Domain
from cloister.schema.written_moments import MONTHS, number_of_name

_SENTENCE = re.compile(r"(.*\S)\s+is\s+an?\s+(?:valid\s+)?date\s*", re.IGNORECASE | re.DOTALL)
_CELL = rf"[tT]1?\.(`(?:[^`]|``)+`|{BARE_NAME})"
_CELLS = re.compile(rf"\s*{_CELL}(?:\s*(?:,|\sand\s)\s*{_CELL}){{1,2}}")

_KINDS = {"year": range(1000, 10_000), "month": range(1, 13), "day": range(1, 32)}
"""The numbers of each part of a date; years of two digits are of no one century."""

_REMEDY = {
    "year": "write years, months and days in this order, years of four digits",
    "month": "write years, months and days in this order, months as 1 to 12 or as English names "
    "or their first letters, and declare others as missing or special",
    "day": "keep to 1 to 31, and declare others as missing or special",
}
"""What to do about values that are no such part of a date."""

_DAYS_OF = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
"""The days of the months that have less than 31; of February in a leap year."""


@dataclass(frozen=True)
class _DatePart:
    """A part of a date: its column, and the number that each value stands for, None if unknown."""

    name: str
    numbers: dict[Constant, int | None]

    def equal(self, *numbers: int) -> list[Predicate]:
        """That the part is a value of one of these numbers, for each such value."""
        values = (value for value, number in self.numbers.items() if number in numbers)
        return [Predicate(Cell(1, self.name), Op.EQ, value) for value in values]

    def common(self) -> tuple[Predicate, ...]:
        """That a year is known and no leap year."""
        values = (
            value for value, year in self.numbers.items() if year is None or calendar.isleap(year)
        )
        return tuple(Predicate(Cell(1, self.name), Op.NE, value) for value in values)


def says_date(check: str) -> bool:
    """Whether a check says that columns are a date together."""
    return _SENTENCE.fullmatch(check) is not None


def date_columns(check: str, name: str) -> tuple[str, ...]:
    """The columns of a date: of the year, if it has one, the month and the day.

    Raises:
        ConstraintError: the check has another form.
    """
    sentence = _SENTENCE.fullmatch(check)
    if sentence is None or _CELLS.fullmatch(sentence[1]) is None:
        raise ConstraintError(
            f"constraint '{name}': cannot read '{check}'; write t.year, t.month, t.day is a date, "
            "or t.month, t.day is a date, odd names in backquotes"
        )
    return tuple(unquote(cell) for cell in re.findall(_CELL, sentence[1]))


def date_rules(check: str, name: str, domain: Domain, hard: bool) -> tuple[DenialConstraint, ...]:
    """The denials of all days that are no dates, called ``name_1``, ``name_2``, ...

    Raises:
        ConstraintError: the check has another form, a column holds something else, or nothing is
            denied.
    """
    names = date_columns(check, name)
    kinds = list(_KINDS)[-len(names) :]
    *year, month, day = (
        _DatePart(column, _numbers_of(domain[column], kind, name))
        for kind, column in zip(kinds, names, strict=True)
    )
    denied: list[tuple[Predicate, ...]] = [
        (of_month, of_day)
        for number, days in _DAYS_OF.items()
        for of_month in month.equal(number)
        for of_day in day.equal(*range(days + 1, _KINDS["day"].stop))
    ]
    if year and len(year[0].common()) < len(year[0].numbers):
        leap = [(of_month, of_day) for of_month in month.equal(2) for of_day in day.equal(29)]
        denied += [(*predicates, *year[0].common()) for predicates in leap]
    if not denied:
        raise ConstraintError(f"constraint '{name}': holds for all declared values; drop it")
    return tuple(
        DenialConstraint(f"{name}_{number}", predicates, hard)
        for number, predicates in enumerate(denied, 1)
    )


def _numbers_of(column: Column, kind: str, name: str) -> dict[Constant, int | None]:
    """The number of each value of a part of a date, None of special ones.

    Raises:
        ConstraintError: other values have no number of this kind.
    """
    special: tuple[int, ...] = ()
    if isinstance(column, Listed):
        numbers: dict[Constant, int | None] = {
            label: _number_of(label, kind) for label in column.labels
        }
    elif isinstance(column, Grid) and column.attribute.type == "integer":
        declared = range(column.origin, column.origin + column.steps * column.stride, column.stride)
        ends_inside = declared[0] in _KINDS[kind] and declared[-1] in _KINDS[kind]
        numbers = {value: value for value in declared} if ends_inside else {declared[0]: None}
        special = column.beyond
    else:
        raise ConstraintError(
            f"constraint '{name}': '{column.name}' is of type {column.attribute.type}; name "
            "columns of whole numbers or listed values"
        )
    if None in numbers.values():
        raise ConstraintError(
            f"constraint '{name}': '{column.name}' has values that are no {kind}; {_REMEDY[kind]}"
        )
    return numbers | dict.fromkeys(special)


def _number_of(label: str, kind: str) -> int | None:
    """The number of a listed year, month or day; None if it is none."""
    text = label.strip()
    if kind == "month" and not text.isdigit():
        return number_of_name(text, MONTHS)
    number = int(text) if re.fullmatch("[0-9]{1,4}", text) else 0
    return number if number in _KINDS[kind] else None
