"""How a text file writes dates, moments and clocks: forms, read and written alike.

Clocks are numbers, of times of day or lengths of time: ``%H:%M`` writes minutes, ``%H:%M:%S``
seconds, ``%H:%M:%S.%3f`` their fractions too. Hours are as many as there are, so ``27:15`` is a
length of time; those of twelve, as in ``%I:%M %p``, are of a day.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cloister.arrays import Array, Integers

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_SHORT = 3
"""Letters of the short name of a month."""


def number_of_name(text: str, names: Sequence[str]) -> int | None:
    """The number, from 1, of the name that a text is or begins, in capitals or not."""
    letters = text.strip().rstrip(".").lower()
    numbers = (number for number, name in enumerate(names, 1) if name.startswith(letters))
    return next(numbers, None) if len(letters) >= _SHORT else None


PIVOT = 69
"""Two-digit years from here on are of the 20th century, as POSIX has it."""

_YEARS, _SHORT_YEARS = range(1, 10_000), range(1969, 2069)
"""Years that four digits, and two digits, can write."""

MICROS = 10**6
"""Microseconds of a second: moments have no finer parts."""

SECONDS_OF_DAY = 86_400
"""Seconds of a day: neither moments nor times of day have leap seconds."""

SHORT_YEAR, MONTH_NAME, HALF = "short_year", "month_name", "half"
"""Groups of patterns beside year, month, day, hour, minute, second and fraction."""

_Parts = Mapping[str, Integers]
"""Parts of moments or of clocks, each of shape (n,); ``fraction`` is of microseconds."""


class _Directive(NamedTuple):
    """How a directive of a form reads its part, as a regular expression for RE2, and writes it."""

    part: str
    pattern: str
    write: Callable[[_Parts], Any]


def _padded(values: Integers, width: int) -> Array:
    return np.array([f"{value:0{width}d}" for value in values.tolist()], dtype=object)


def _digits(part: str, read: str, width: int) -> _Directive:
    """A part as a number: of so many digits where it is read, padded where it is written."""
    return _Directive(
        part, f"(?P<{part}>[0-9]{{{read}}})", lambda parts: _padded(parts[part], width)
    )


def _month(letters: int | None) -> _Directive:
    names = [name[:letters] for name in MONTHS]
    written = np.array([name.capitalize() for name in names], dtype=object)
    pattern = f"(?P<{MONTH_NAME}>(?i:{'|'.join(names)}))"
    return _Directive("month", pattern, lambda parts: written[parts["month"] - 1])


def _hour_of_twelve(read: str, width: int) -> _Directive:
    return _Directive(
        "hour", f"(?P<hour>{read})", lambda parts: _padded((parts["hour"] + 11) % 12 + 1, width)
    )


def _half(words: Sequence[str]) -> _Directive:
    pattern = f"(?P<{HALF}>(?i:am|pm))"
    written = np.array(words, dtype=object)
    return _Directive("half", pattern, lambda parts: written[(parts["hour"] >= 12).astype(int)])


def _fraction(read: str, digits: int) -> _Directive:
    pattern = f"(?P<fraction>[0-9]{{{read}}})"
    return _Directive(
        "fraction",
        pattern,
        lambda parts: _padded(parts["fraction"] // 10 ** (6 - digits), digits),
    )


def _zone(colon: str) -> _Directive:
    pattern = f"(?:Z|(?P<sign>[+-])(?P<east>[0-9]{{2}}){colon}(?P<minutes_east>[0-9]{{2}}))"
    return _Directive("zone", pattern, lambda _: f"+00{colon}00")


_FRACTIONS = {"%f": 6, **{f"%{digits}f": digits for digits in range(1, 7)}}
"""Digits of a second's fraction that are written."""

_DIRECTIVES = {
    "%Y": _digits("year", "4", 4),
    "%y": _Directive(
        "year", f"(?P<{SHORT_YEAR}>[0-9]{{2}})", lambda parts: _padded(parts["year"] % 100, 2)
    ),
    "%m": _digits("month", "2", 2),
    "%-m": _digits("month", "1,2", 1),
    "%d": _digits("day", "2", 2),
    "%-d": _digits("day", "1,2", 1),
    "%b": _month(_SHORT),
    "%B": _month(None),
    "%H": _digits("hour", "2", 2),
    "%-H": _digits("hour", "1,2", 1),
    "%I": _hour_of_twelve("0[1-9]|1[0-2]", 2),
    "%-I": _hour_of_twelve("[1-9]|1[0-2]", 1),
    "%M": _digits("minute", "2", 2),
    "%S": _digits("second", "2", 2),
    **{token: _fraction(str(digits), digits) for token, digits in _FRACTIONS.items()},
    "%f": _fraction("1,9", 6),
    "%z": _zone(""),
    "%:z": _zone(":"),
    "%p": _half(("AM", "PM")),
    "%P": _half(("am", "pm")),
    "%%": _Directive("", "%", lambda _: "%"),
}
_TOKEN = re.compile(r"%(?:[-:]|[1-6](?=f))?[A-Za-z%]|[^%]+|%")
_OFFSET = re.compile(
    r"(?<=[MSfpP])(?:\.0+)? ?(?P<sign>[+-])(?P<hours>[01][0-9]):?(?P<minutes>[0-5][0-9])?$"
)
"""A fixed distance from UTC at the end of a form, after its clock."""

_DAY_PARTS = ("year", "month", "day")
_COARSER = {"second": 60 * MICROS, "minute": 3600 * MICROS, "hour": SECONDS_OF_DAY * MICROS}
"""Parts of the clock, and the microseconds that a moment is a multiple of without them."""

_STARTS = {
    "month": ("M", "Y"),
    "day": ("D", "M"),
    "hour": ("h", "D"),
    "minute": ("m", "h"),
    "second": ("s", "m"),
}
"""Parts of a moment: their unit in numpy, and that within which they are counted."""


def _parts_of(form: str) -> list[str]:
    """The part that each directive of a form writes."""
    return [_DIRECTIVES[token].part for token in _TOKEN.findall(form) if token in _DIRECTIVES]


_TIME = re.compile(r"%-?(?:H:%M(?::%S(?P<fraction>\.%[1-6]f)?)?|(?P<twelve>I):%M(?::%S)? ?%[pP])")


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


def has_fraction(form: str) -> bool:
    """Whether a form of clocks writes fractions of seconds."""
    return _fraction_digits(form) > 0


def require_moment_format(form: str, clock: bool) -> str:
    """The form of a date or, with a ``clock``, of a moment, if it can be read back.

    Raises:
        ValueError: it cannot.
    """
    tokens, parts = _TOKEN.findall(form), [part for part in _parts_of(form) if part]
    unknown = [token for token in tokens if token.startswith("%") and token not in _DIRECTIVES]
    if unknown:
        raise ValueError(f"holds {unknown[0]}, which is not known; write one such as %d/%m/%Y")
    needed = _DAY_PARTS if clock else _DAY_PARTS[:2]
    if len(set(parts)) < len(parts) or not set(needed) <= set(parts):
        raise ValueError("should have year, month and day once each, such as %d/%m/%Y")
    if not clock and not set(parts) <= set(_DAY_PARTS):
        raise ValueError("has hours or less, and the attribute is a date; use type datetime")
    if any(token in tokens for token in ("%I", "%-I")) != ("half" in parts):
        raise ValueError("has %I without %p, or %p without %I; write both, or %H")
    return form


def written_micros(form: str) -> int:
    """The microseconds that all moments are a multiple of that a form can write."""
    parts = _parts_of(form)
    lacking = [micros for part, micros in _COARSER.items() if part not in parts]
    return max(lacking, default=10 ** (6 - _fraction_digits(form)))


def _fraction_digits(form: str) -> int:
    return max((_FRACTIONS.get(token, 0) for token in _TOKEN.findall(form)), default=0)


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
    return "zone" in _parts_of(form)


def has_short_year(form: str) -> bool:
    """Whether a form writes years with two digits."""
    return "%y" in _TOKEN.findall(form)


def is_of_months(form: str | None) -> bool:
    """Whether a form writes months, without days."""
    return form is not None and "day" not in _parts_of(form)


def _pattern_of(token: str) -> str:
    return _DIRECTIVES[token].pattern if token in _DIRECTIVES else re.escape(token)


def moment_pattern(form: str) -> str:
    """The regular expression of a form; its groups are named year, month, day, ..."""
    offset = _OFFSET.search(form)
    end = len(form) if offset is None else offset.start("sign")
    parts = map(_pattern_of, _TOKEN.findall(form[:end]))
    return f"^{''.join(parts)}{_offset_pattern(form[end:])}$"


def partial_pattern(form: str) -> str:
    """The regular expression of dates of a form whose day, or day and month, are not known.

    What is not known is left out, with the mark beside it, or written as zeros.
    """
    tokens = _TOKEN.findall(form)
    parts = [_DIRECTIVES[token].part if token in _DIRECTIVES else "" for token in tokens]
    day = parts.index("day")
    mark = day + 1 if day + 1 < len(tokens) and not tokens[day + 1].startswith("%") else day - 1
    patterns = list(map(_pattern_of, tokens))
    month = [pattern for n, pattern in enumerate(patterns) if n not in (day, mark)]
    year = [pattern for pattern, part in zip(patterns, parts, strict=True) if part == "year"]
    zeros = [
        {"day": "00?", "month": f"(?:00?|{pattern})"}.get(part, pattern)
        for pattern, part in zip(patterns, parts, strict=True)
    ]
    forms = "|".join("".join(form) for form in (month, year, zeros))
    return re.sub(r"\?P<\w+>", "?:", f"^(?:{forms})$")


def _offset_pattern(text: str) -> str:
    """The regular expression of one distance from UTC, such as ``+02:00``, in named groups."""
    if not text:
        return ""
    east, colon, rest = text[1:3], ":" * (":" in text), text[3:].lstrip(":")
    minutes = f"{colon}(?P<minutes_east>{rest})" if rest else ""
    return f"(?P<sign>[{text[0]}])(?P<east>{east}){minutes}"


def write_moments(values: Array, form: str) -> Array:
    """Texts (n,) of moments (n,) of dtype ``datetime64`` in UTC, none of them missing."""
    distinct, positions = np.unique(values.astype("datetime64[us]"), return_inverse=True)
    distinct = distinct + np.timedelta64(utc_offset(form), "m")
    start = {unit: distinct.astype(f"datetime64[{unit}]") for unit in "YMDhms"}
    parts = {
        part: (start[unit] - start[whole]).astype(np.int64) + (whole in "YM")
        for part, (unit, whole) in _STARTS.items()
    }
    parts["year"] = start["Y"].astype(np.int64) + 1970
    parts["fraction"] = (distinct - start["s"]).astype(np.int64)
    return _written(parts, form)[positions]


def write_clocks(numbers: Array, form: str) -> Array:
    """Texts (n,) of numbers (n,) in the unit of a form of clocks, none of them missing."""
    tick = 10 ** (6 - _fraction_digits(form))
    micros = np.rint(numbers.astype(np.float64) * clock_unit(form) * (MICROS // tick)) * tick
    distinct, positions = np.unique(micros.astype(np.int64), return_inverse=True)
    seconds, fraction = np.divmod(distinct, MICROS)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    parts = {"hour": hour, "minute": minute, "second": second, "fraction": fraction}
    return _written(parts, form)[positions]


def _written(parts: _Parts, form: str) -> Array:
    """Texts (n,) of parts, as a form writes them."""
    texts = np.full(len(parts["hour"]), "", dtype=object)
    for token in _TOKEN.findall(form):
        texts = texts + (_DIRECTIVES[token].write(parts) if token in _DIRECTIVES else token)
    return texts


def written_years(form: str) -> range:
    """The years that a form writes, on its own clock."""
    return _SHORT_YEARS if has_short_year(form) else _YEARS


def _written_year(moment: dt.date, form: str) -> int:
    """The year that a form writes, at its distance from UTC.

    Raises:
        ValueError: it is none of 1 to 9999.
    """
    if not isinstance(moment, dt.datetime):
        return moment.year
    try:
        return (_in_utc(moment) + dt.timedelta(minutes=utc_offset(form))).year
    except OverflowError:
        raise ValueError(
            "a bound in UTC has no year of four digits at the format's distance; narrow the bounds"
        ) from None


def require_written(form: str | None, bounds: Sequence[dt.date], step: int) -> None:
    """Check that a form writes all of a grid, so that what is written is read back.

    ``bounds`` are the first value of the grid, special ones and the last.

    Raises:
        ValueError: it lacks a part of the clock, or the century, that values have.
    """
    if form is None:
        return
    unit = written_micros(form)
    if any(micros % unit for micros in [step, *map(_micros, bounds[:-1])]):
        seconds = in_seconds(unit)
        raise ValueError(
            f"the format writes no parts below {seconds} seconds; declare step: {seconds}"
        )
    years = [_written_year(bound, form) for bound in bounds]
    if has_short_year(form) and any(year not in _SHORT_YEARS for year in years):
        raise ValueError("the format has years of two digits, 1969 to 2068; narrow the bounds")


def _micros(moment: dt.date) -> int:
    """Microseconds of a day or moment on the clock, in UTC."""
    if not isinstance(moment, dt.datetime):
        return 0
    utc = _in_utc(moment)
    return (utc.hour * 3600 + utc.minute * 60 + utc.second) * MICROS + utc.microsecond


def _in_utc(moment: dt.datetime) -> dt.datetime:
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC)
