"""How a text file writes numbers: declared forms, read and written alike.

Numbers may have marks between their digits, and units beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from cloister.arrays import Array
from cloister.schema.written_moments import has_fraction, is_clock_format

_UNIT = r"(?:%%|[^%0-9+\-])*"
"""What may stand beside a number: neither digits nor signs, which are its own."""

_FORM = re.compile(
    rf"(?P<before>{_UNIT})%(?P<enclosed>\()?(?P<group>')?"
    rf"(?:(?P<short>g)|(?:0(?P<width>[0-9]{{1,2}}))?(?:d|\.(?P<places>[0-9]{{1,2}})f))"
    rf"(?P<after>{_UNIT})"
)


class Unit(NamedTuple):
    """What stands before a number, behind its sign, and what stands after it.

    ``enclosed``: numbers below zero are in parentheses, without a sign.
    """

    before: str
    after: str
    enclosed: bool = False


NO_UNIT = Unit("", "")

ENCLOSED = r"^([^()0-9]*)\(([^()]*)\)([^()0-9]*)$"
"""The regular expression of a number in parentheses, or with its unit, for RE2: three groups."""

WHOLE = r"^\s*[+-]?0*[0-9]{1,18}(\.0*)?\s*$"
"""A whole number in plain marks, of as many digits as int64 holds whatever they are."""

DECIMAL = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*$"
"""A number in plain marks, ``1234.5``."""

Marks = tuple[str, str | None]
"""The decimal and the thousands mark of a file."""

MARKS: tuple[Marks, ...] = (
    *((".", None), (".", ","), (",", None), (",", "."), (".", "'"), (".", " "), (",", " ")),
    *((",", "\u00a0"), (",", "\u202f")),
)
"""Marks that are usual; the first are plain ones."""

CURRENCIES = ("$", "€", "£", "¥", "US$", "CHF", "EUR", "USD", "GBP")
"""What stands before a number that is an amount of money; other words name a code."""

_ATTACHED = frozenset(
    (
        *CURRENCIES,
        *("%", "‰", "°", "°C", "°F", "km", "m", "cm", "mm", "kg", "g", "mg", "l", "ml"),
        *("h", "min", "s", "ms", "kB", "KB", "MB", "GB", "TB", "W", "kW", "kWh", "MWh"),
    )
)
"""Units that follow a number without a space; other letters, as in ``12A``, name a code."""

_LONGEST = 12
"""Letters of a unit at most; longer texts are no unit."""

STARTS_AS_NUMBER = r"\s*\(?[+-]?(?:[$€£¥]\s?)?[.,]?[0-9]"
"""How numbers, dates and amounts of money begin."""

BELOW_ZERO = r"^\s*\(\s*([^()+-]*)\s*\)\s*$"
"""A number below zero, in parentheses, with what stands beside it: one group."""

SPACES = "[ \t\u00a0\u202f]*"
"""Spaces between a number and its unit; narrow and non-breaking ones are usual there."""

_WITH_UNIT = re.compile(
    rf"\s*[+-]?(?P<before>\D{{0,{_LONGEST}}}?{SPACES})"
    r"[+-]?\d+(?:[.,' \u00a0\u202f]\d{3})*(?:[.,]\d*)?"
    rf"(?P<after>{SPACES}(?:[^\s\d+\-.,][^\d+\-]*)?)"
)


def unit_beside(text: str) -> Unit | None:
    """What stands before and after a number, in whatever marks; None of other texts."""
    match = _WITH_UNIT.fullmatch(text)
    return Unit(match["before"], match["after"]) if match else None


def is_usual_unit(unit: Unit) -> bool:
    """Whether a unit is one of a quantity, and no part of a code."""
    word = unit.after.strip()
    apart = unit.after != word and len(word) <= _LONGEST
    follows = unit.after == "" or word in _ATTACHED or apart
    return follows and (unit.before == "" or unit.before.strip() in CURRENCIES)


def places_pattern(thousands: str | None) -> str:
    """The regular expression of a number with a decimal mark; its group are the places."""
    marks = "".join(mark for mark in ".," if mark != thousands)
    return rf"^[+-]?[0-9\W_]*?[{marks}](?P<places>[0-9]+)$"


def require_number_format(form: str, whole: bool) -> str:
    """The form of a number, if it is one; of a ``whole`` number decimal places are zeros.

    Raises:
        ValueError: it is none.
    """
    if is_clock_format(form) and not (whole and has_fraction(form)):
        return form
    match = _FORM.fullmatch(form)
    if match is None or (not match["places"] and whole == bool(match["short"])):
        example = "%d, %05d, %'d, %(d, %.1f, %d%% or %H:%M" if whole else "%.2f, %'.2f, %g or %g €"
        raise ValueError(f"should be the form of a number; write one such as {example}")
    return form


def groups_thousands(form: str) -> bool:
    """Whether the form of a number puts its thousands in groups."""
    match = _FORM.fullmatch(form)
    return match is not None and bool(match["group"])


def decimal_places(form: str | None) -> int:
    """The decimal places that a form writes; 0 without a form."""
    match = _FORM.fullmatch(form or "")
    return int(match["places"] or 0) if match else 0


def unit_of(form: str | None) -> Unit:
    """What a form writes before and after a number; empty texts for a number alone."""
    match = _FORM.fullmatch(form or "")
    if match is None:
        return NO_UNIT
    before, after = (match[part].replace("%%", "%") for part in ("before", "after"))
    return Unit(before, after, bool(match["enclosed"]))


def with_unit(form: str, unit: Unit) -> str:
    """The form of a number alone, with what stands before and after."""
    before, after = (part.replace("%", "%%") for part in (unit.before, unit.after))
    return before + (form.replace("%", "%(", 1) if unit.enclosed else form) + after


def unit_pattern(unit: Unit) -> str | None:
    """The regular expression of a number with its unit, for RE2; None without a unit.

    Its two groups are a sign before the unit, and the number.
    """
    before, after = unit.before.strip(), unit.after.strip()
    if not before and not after:
        return None
    start, end = (f"(?:{re.escape(part)})?" if part else "" for part in (before, after))
    return rf"^\s*([+-]?){SPACES}{start}{SPACES}([+-]?[0-9.,].*?){SPACES}{end}\s*$"


def write_numbers(values: Array, form: str | None, decimal: str, thousands: str | None) -> Array:
    """Texts (n,) of whole or decimal numbers (n,), none of them missing.

    Without a form as Python writes them. A sign, or parentheses, stand before the unit.
    """
    distinct, positions = np.unique(values, return_inverse=True)
    write = str if form is None else _number_writer(form)
    unit = unit_of(form)
    marks = str.maketrans({".": decimal, ",": thousands or ","})
    texts = [_beside(write(number).translate(marks), unit) for number in distinct]
    return np.array(texts, dtype=object)[positions]


def _beside(number: str, unit: Unit) -> str:
    digits = number.removeprefix("-")
    sign = number[: len(number) - len(digits)]
    text = f"{unit.before}{digits}{unit.after}"
    return f"({text})" if sign and unit.enclosed else sign + text


def number_pattern(decimal: str, thousands: str | None) -> str:
    """The regular expression of a number with these marks; whole thousands are grouped or not."""
    mark = re.escape(decimal)
    digits = "[0-9]+"
    if thousands:
        digits = f"(?:[0-9]{{1,3}}(?:{re.escape(thousands)}[0-9]{{3}})+|[0-9]+)"
    return rf"^\s*[+-]?(?:{digits}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]{{1,3}})?\s*$"


def _number_writer(form: str) -> Callable[[float], str]:
    match = _FORM.fullmatch(form)
    assert match is not None
    group, width, places = match["group"], match["width"], match["places"]
    if match["short"]:
        return lambda number: _shortest(number, ",f" if group else "f")
    padded, grouped = f"0{width}" if width else "", "," if group else ""
    code = padded + grouped + ("d" if places is None else f".{places}f")
    return lambda number: format(number, code)


def _shortest(number: float, code: str) -> str:
    """The fewest digits from which a number is read back, never with an exponent."""
    # zero below zero has a sign
    return format(Decimal(np.format_float_positional(number or 0.0, trim="-")), code)
