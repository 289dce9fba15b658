"""How a text file writes dates and moments: declared forms, read and written alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cloister.arrays import Array, Integers

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


def _twelve(values: Array) -> Integers:
    return (_part(values, "h", "D") + 11) % 12 + 1


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
    "%I": lambda at: _padded(_twelve(at), 2),
    "%-I": lambda at: _padded(_twelve(at), 1),
    "%M": lambda at: _padded(_part(at, "m", "h"), 2),
    "%S": lambda at: _padded(_part(at, "s", "m"), 2),
    **{token: partial(_fraction, digits=digits) for token, digits in _FRACTIONS.items()},
    "%:z": lambda _: "+00:00",
    "%z": lambda _: "+0000",
    "%p": lambda at: np.where(_part(at, "h", "D") < 12, "AM", "PM").astype(object),
    "%P": lambda at: np.where(_part(at, "h", "D") < 12, "am", "pm").astype(object),
    "%%": lambda _: "%",
}
