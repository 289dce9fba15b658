"""How a text file writes numbers, dates and moments: declared forms, read and written alike.

Numbers may have marks between their digits, and units beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cloister.arrays import Array, Integers

_UNIT = r"(?:%%|[^%0-9+\-])*"
"""What may stand beside a number: neither digits nor signs, which are its own."""

_FORM = re.compile(
    rf"(?P<before>{_UNIT})%(?P<enclosed>\()?(?P<group>')?"
    rf"(?:(?P<short>g)|(?:0(?P<width>[0-9]{{1,2}}))?(?:d|\.(?P<places>[0-9]{{1,2}})f))"
    rf"(?P<after>{_UNIT})"
)

_TIME = re.compile(r"%-?(?:H:%M(?::%S(?P<fraction>\.%[1-6]f)?)?|(?P<twelve>I):%M(?::%S)? ?%[pP])")


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

SPACES = "[ \t\u00a0\u202f]*"
"""Spaces between a number and its unit; narrow and non-breaking ones are usual there."""


def require_number_format(form: str, whole: bool) -> str:
    """The form of a number, if it is one; of a ``whole`` number decimal places are zeros.

    Raises:
        ValueError: it is none.
    """
    clock = _TIME.fullmatch(form)
    if clock is not None and not (whole and clock["fraction"]):
        return form
    match = _FORM.fullmatch(form)
    if match is None or (not match["places"] and whole == bool(match["short"])):
        example = "%d, %05d, %'d, %(d, %.1f, %d%% or %H:%M" if whole else "%.2f, %'.2f, %g or %g €"
        raise ValueError(f"should be the form of a number; write one such as {example}")
    return form


def is_clock_format(form: str | None) -> bool:
    """Whether numbers are written as times of day or lengths of time."""
    return form is not None and _TIME.fullmatch(form) is not None


def is_twelve_hour(form: str | None) -> bool:
    """Whether numbers are written as times of day by the hours of twelve."""
    clock = _TIME.fullmatch(form or "")
    return clock is not None and clock["twelve"] is not None


def clock_unit(form: str | None) -> int:
    """The seconds of one, in numbers of a form that writes times; seconds without a form."""
    return 60 if is_clock_format(form) and "%S" not in str(form) else 1


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
    distinct, places = np.unique(values, return_inverse=True)
    write = str if form is None else _number_writer(form)
    unit = unit_of(form)
    marks = str.maketrans({".": decimal, ",": thousands or ","})
    texts = [_beside(write(number).translate(marks), unit) for number in distinct]
    return np.array(texts, dtype=object)[places]


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


MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_SHORT = 3
"""Letters of the short name of a month."""

_DIRECTIVE = re.compile(r"%(?:[-:]|[1-6](?=f))?[A-Za-z%]|[^%]+|%")
_OFFSET = re.compile(
    r"(?<=[MSfpP])(?:\.0+)? ?(?P<sign>[+-])(?P<hours>[01][0-9]):?(?P<minutes>[0-5][0-9])?$"
)
"""A fixed distance from UTC at the end of a form, after its clock."""

PIVOT = 69
"""Two-digit years from here on are of the 20th century, as POSIX has it."""

MICROS = 10**6
"""Microseconds of a second: moments have no finer parts."""

SECONDS_OF_DAY = 86_400
"""Seconds of a day: neither moments nor times of day have leap seconds."""

_FRACTIONS = {"%f": 6, **{f"%{digits}f": digits for digits in range(1, 7)}}
"""Digits of a second's fraction that are written."""

SHORT_YEAR, MONTH_NAME, HALF = "short_year", "month_name", "half"
"""Groups of patterns beside year, month, day, hour, minute, second and fraction."""

_MONTH_NAMES = "|".join(MONTHS)
_MONTH_STARTS = "|".join(name[:_SHORT] for name in MONTHS)
_READ = {
    "%Y": "(?P<year>[0-9]{4})",
    "%y": f"(?P<{SHORT_YEAR}>[0-9]{{2}})",
    "%m": "(?P<month>[0-9]{2})",
    "%-m": "(?P<month>[0-9]{1,2})",
    "%d": "(?P<day>[0-9]{2})",
    "%-d": "(?P<day>[0-9]{1,2})",
    "%b": f"(?P<{MONTH_NAME}>(?i:{_MONTH_STARTS}))",
    "%B": f"(?P<{MONTH_NAME}>(?i:{_MONTH_NAMES}))",
    "%H": "(?P<hour>[0-9]{2})",
    "%-H": "(?P<hour>[0-9]{1,2})",
    "%I": "(?P<hour>0[1-9]|1[0-2])",
    "%-I": "(?P<hour>[1-9]|1[0-2])",
    "%M": "(?P<minute>[0-9]{2})",
    "%S": "(?P<second>[0-9]{2})",
    **{token: f"(?P<fraction>[0-9]{{{digits}}})" for token, digits in _FRACTIONS.items()},
    "%f": "(?P<fraction>[0-9]{1,9})",
    "%:z": "(?:Z|(?P<sign>[+-])(?P<east>[0-9]{2}):(?P<minutes_east>[0-9]{2}))",
    "%z": "(?:Z|(?P<sign>[+-])(?P<east>[0-9]{2})(?P<minutes_east>[0-9]{2}))",
    "%p": f"(?P<{HALF}>(?i:am|pm))",
    "%P": f"(?P<{HALF}>(?i:am|pm))",
    "%%": "%",
}
_PARTS = {
    "year": ("%Y", "%y"),
    "month": ("%m", "%-m", "%b", "%B"),
    "day": ("%d", "%-d"),
    "hour": ("%H", "%-H", "%I", "%-I"),
    "minute": ("%M",),
    "second": ("%S",),
    "fraction": tuple(_FRACTIONS),
    "half": ("%p", "%P"),
    "zone": ("%z", "%:z"),
}
_DAY_PARTS = ("year", "month", "day")
_CLOCK = (("second", 60 * MICROS), ("minute", 3600 * MICROS), ("hour", SECONDS_OF_DAY * MICROS))
"""Parts of the clock, and the microseconds that a moment is a multiple of without them."""


def require_moment_format(form: str, clock: bool) -> str:
    """The form of a date or, with a ``clock``, of a moment, if it can be read back.

    Raises:
        ValueError: it cannot.
    """
    tokens = _DIRECTIVE.findall(form)
    unknown = [token for token in tokens if token.startswith("%") and token not in _READ]
    if unknown:
        raise ValueError(f"holds {unknown[0]}, which is not known; write one such as %d/%m/%Y")
    times = {part: sum(token in of for token in tokens) for part, of in _PARTS.items()}
    needed = _DAY_PARTS if clock else _DAY_PARTS[:2]
    if any(count > 1 for count in times.values()) or not all(times[part] for part in needed):
        raise ValueError("should have year, month and day once each, such as %d/%m/%Y")
    twelve = any(token in tokens for token in ("%I", "%-I"))
    if not clock and any(times[part] for part in times if part not in _DAY_PARTS):
        raise ValueError("has hours or less, and the attribute is a date; use type datetime")
    if twelve != bool(times["half"]):
        raise ValueError("has %I without %p, or %p without %I; write both, or %H")
    return form


def written_micros(form: str) -> int:
    """The microseconds that all moments are a multiple of that a form can write."""
    tokens = _DIRECTIVE.findall(form)
    lacking = [micros for part, micros in _CLOCK if not set(_PARTS[part]) & set(tokens)]
    digits = max((_FRACTIONS.get(token, 0) for token in tokens), default=0)
    return max(lacking, default=10 ** (6 - digits))


def in_seconds(micros: int) -> int | float:
    """Microseconds as a spec writes them: 60, 0.001."""
    return micros / MICROS if micros % MICROS else micros // MICROS


def utc_offset(form: str) -> int:
    """Minutes that the clock of a form is ahead of UTC."""
    match = _OFFSET.search(form)
    if match is None:
        return 0
    minutes = int(match["hours"]) * 60 + int(match["minutes"] or 0)
    return -minutes if match["sign"] == "-" else minutes


def is_moved_to_utc(form: str) -> bool:
    """Whether each moment is read with its own distance from UTC, and all are written in UTC."""
    return bool(set(_PARTS["zone"]) & set(_DIRECTIVE.findall(form)))


def has_short_year(form: str) -> bool:
    """Whether a form writes years with two digits."""
    return "%y" in _DIRECTIVE.findall(form)


def is_of_months(form: str | None) -> bool:
    """Whether a form writes months, without days."""
    return form is not None and not set(_PARTS["day"]) & set(_DIRECTIVE.findall(form))


def moment_pattern(form: str) -> str:
    """The regular expression of a form; its groups are named year, month, day, ..."""
    offset = _OFFSET.search(form)
    end = len(form) if offset is None else offset.start("sign")
    parts = [_READ.get(token) or re.escape(token) for token in _DIRECTIVE.findall(form[:end])]
    return f"^{''.join(parts)}{_offset_pattern(form[end:])}$"


def partial_pattern(form: str) -> str:
    """The regular expression of dates of a form whose day, or day and month, are not known.

    What is not known is left out, with the mark beside it, or written as zeros.
    """
    tokens = _DIRECTIVE.findall(form)
    day = next(at for at, token in enumerate(tokens) if token in _PARTS["day"])
    mark = day + 1 if day + 1 < len(tokens) and not tokens[day + 1].startswith("%") else day - 1
    month = [token for at, token in enumerate(tokens) if at not in (day, mark)]
    year = [token for token in tokens if token in _PARTS["year"]]
    zeros = {
        **dict.fromkeys(_PARTS["day"], "00?"),
        **{token: f"(?:00?|{_READ[token]})" for token in _PARTS["month"]},
    }
    written = (_READ | part for part in ({}, {}, zeros))
    forms = (
        "".join(read.get(token) or re.escape(token) for token in of)
        for read, of in zip(written, (month, year, tokens), strict=True)
    )
    return re.sub(r"\?P<\w+>", "?:", f"^(?:{'|'.join(forms)})$")


def _offset_pattern(text: str) -> str:
    """The regular expression of one distance from UTC, such as ``+02:00``, in named groups."""
    if not text:
        return ""
    east, colon, rest = text[1:3], ":" * (":" in text), text[3:].lstrip(":")
    minutes = f"{colon}(?P<minutes_east>{rest})" if rest else ""
    return f"(?P<sign>[{text[0]}])(?P<east>{east}){minutes}"


def write_moments(values: Array, form: str) -> Array:
    """Texts (n,) of moments (n,) of dtype ``datetime64`` in UTC, none of them missing."""
    distinct, places = np.unique(values.astype("datetime64[us]"), return_inverse=True)
    distinct = distinct + np.timedelta64(utc_offset(form), "m")
    texts = np.full(len(distinct), "", dtype=object)
    for token in _DIRECTIVE.findall(form):
        texts = texts + (_WRITTEN[token](distinct) if token in _WRITTEN else token)
    return texts[places]


def _padded(values: Integers, width: int) -> Array:
    return np.array([f"{value:0{width}d}" for value in values.tolist()], dtype=object)


def _part(values: Array, unit: str, of: str) -> Integers:
    """How many units (``M``, ``D``, ...) each moment lies after the beginning of its larger one."""
    inside = values.astype(f"datetime64[{unit}]") - values.astype(f"datetime64[{of}]")
    return inside.astype(np.int64)


def _year(values: Array) -> Integers:
    return values.astype("datetime64[Y]").astype(np.int64) + 1970


def _names(values: Array, letters: int | None) -> Array:
    names = np.array([name[:letters].capitalize() for name in MONTHS], dtype=object)
    return names[_part(values, "M", "Y")]


def _fraction(values: Array, digits: int) -> Array:
    return _padded(_part(values, "us", "s") // 10 ** (6 - digits), digits)


_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "%Y": lambda at: _padded(_year(at), 4),
    "%y": lambda at: _padded(_year(at) % 100, 2),
    "%m": lambda at: _padded(_part(at, "M", "Y") + 1, 2),
    "%-m": lambda at: _padded(_part(at, "M", "Y") + 1, 1),
    "%d": lambda at: _padded(_part(at, "D", "M") + 1, 2),
    "%-d": lambda at: _padded(_part(at, "D", "M") + 1, 1),
    "%b": lambda at: _names(at, _SHORT),
    "%B": lambda at: _names(at, None),
    "%H": lambda at: _padded(_part(at, "h", "D"), 2),
    "%-H": lambda at: _padded(_part(at, "h", "D"), 1),
    "%I": lambda at: _padded((_part(at, "h", "D") + 11) % 12 + 1, 2),
    "%-I": lambda at: _padded((_part(at, "h", "D") + 11) % 12 + 1, 1),
    "%M": lambda at: _padded(_part(at, "m", "h"), 2),
    "%S": lambda at: _padded(_part(at, "s", "m"), 2),
    **{token: partial(_fraction, digits=digits) for token, digits in _FRACTIONS.items()},
    "%:z": lambda _: "+00:00",
    "%z": lambda _: "+0000",
    "%p": lambda at: np.where(_part(at, "h", "D") < 12, "AM", "PM").astype(object),
    "%P": lambda at: np.where(_part(at, "h", "D") < 12, "am", "pm").astype(object),
    "%%": lambda _: "%",
}
