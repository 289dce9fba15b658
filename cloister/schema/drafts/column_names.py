"""What the name of a column says of its values: public ranges, codes, keys.

A name is public once a person has confirmed it; that values fit is read from the data.
"""

from __future__ import annotations

import re

Range = tuple[int, int]

_WORD = re.compile(r"[A-ZÀ-Þ]?[a-zà-ÿ]+|[A-ZÀ-Þ]+(?![a-zà-ÿ])|%")

_CALENDAR: dict[str, tuple[Range, ...]] = {
    "day of week": ((0, 6), (1, 7)),
    "dayofweek": ((0, 6), (1, 7)),
    "weekday": ((0, 6), (1, 7)),
    "day of year": ((1, 366),),
    "dayofyear": ((1, 366),),
    "day": ((1, 31),),
    "day of month": ((1, 31),),
    "month": ((1, 12),),
    "quarter": ((1, 4),),
    "week": ((1, 53),),
    "hour": ((0, 23), (0, 24)),
    "minute": ((0, 59),),
    "second": ((0, 59),),
}
"""Ranges of what a name ends in, from calendars and clocks: of whole numbers."""

_SCALES: dict[str, tuple[Range, ...]] = {
    "age": ((0, 120),),
    "percent": ((0, 1), (0, 100)),
    "percentage": ((0, 1), (0, 100)),
    "pct": ((0, 1), (0, 100)),
    "%": ((0, 1), (0, 100)),
    "latitude": ((-90, 90),),
    "lat": ((-90, 90),),
    "longitude": ((-180, 180),),
    "lon": ((-180, 180),),
    "lng": ((-180, 180),),
    "rating": ((1, 5), (0, 5), (0, 10), (0, 100)),
    "stars": ((1, 5), (0, 5)),
    "score": ((1, 5), (0, 5), (1, 10), (0, 10), (0, 100)),
    "share": ((0, 1), (0, 100)),
    "rate": ((0, 1), (0, 100)),
    "ratio": ((0, 1),),
    "fraction": ((0, 1),),
    "probability": ((0, 1),),
}
"""The same of usual scales, the narrowest first; of decimal numbers too."""

_RATE = "per"
"""The word of a name that makes its last word a unit: ``kWh per hour`` is no hour."""

_CODES = frozenset(
    (
        *("zip", "zipcode", "postcode", "postal", "plz", "phone", "telephone", "tel", "mobile"),
        *("fax", "code", "provider", "account", "ssn", "npi", "fips", "isbn", "ean", "sku", "icd"),
    )
)
"""Words of names whose digits are no quantity."""

_NUMBERS = frozenset(("number", "no", "nr", "num", "nbr"))
"""The same at the end of a name; ``number of rooms`` is a quantity."""

_KEYS = frozenset(("id", "ids", "identifier", "key", "uuid", "guid", "ref", "reference", "row"))
"""Words of names of keys."""

_PERSONS = frozenset(
    (
        *("person", "user", "patient", "customer", "client", "member", "subject", "participant"),
        *("employee", "student", "pupil", "resident", "household", "citizen", "respondent"),
        *("pat", "cust", "emp"),
    )
)
"""Words of those who may own several rows."""

_OTHER_ROWS = frozenset(
    (
        *("manager", "supervisor", "superior", "boss", "lead", "mentor", "parent", "mother"),
        *("father", "spouse", "partner", "referrer", "predecessor", "successor", "head", "reports"),
    )
)
"""Words of those whom a row of the same table may stand for."""

_YEARS = range(1800, 2200)
"""Years that a column may hold that is called by that name."""

_DECADE = 10
"""Years to whose multiples a range of years is widened."""


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in lower case: ``userId``, ``USER ID`` and ``user_id`` have the same."""
    return tuple(word.lower() for word in _WORD.findall(name))


def public_range(name: str, low: float, high: float) -> Range | None:
    """The range that the name of a column has by itself, if it holds its least and greatest."""
    words = words_of(name)
    if _RATE in words:
        return None
    ranges = _SCALES | (_CALENDAR if isinstance(low, int) else {})
    for length in (3, 1):
        for first, last in ranges.get(" ".join(words[-length:]), ()) if words else ():
            if first <= low and high <= last:
                return first, last
    if words and words[-1] == "year" and low in _YEARS and high in _YEARS:
        return int(low // _DECADE * _DECADE), int(-(-high // _DECADE) * _DECADE)
    return None


def names_a_code(name: str) -> bool:
    """Whether digits under a name are no quantity: codes, numbers of accounts, keys."""
    words = words_of(name)
    return bool(_CODES.intersection(words)) or bool(words and words[-1] in _NUMBERS | _KEYS)


def names_a_person(name: str) -> bool:
    """Whether a name is that of a person, alone or with a word for keys: ``user``, ``userId``."""
    words = words_of(name)
    while words and words[-1] in _KEYS | _NUMBERS | _CODES:
        words = words[:-1]
    return bool(words) and words[-1] in _PERSONS


def names_another_row(name: str) -> bool:
    """Whether a name is that of whom a row of the same table may stand for: ``reports_to``."""
    return bool(_OTHER_ROWS.intersection(words_of(name)))


def names_a_key(name: str) -> bool:
    """Whether a name is that of what tells rows, persons or things apart."""
    words = words_of(name)
    return bool(words) and (words[-1] in _KEYS | _NUMBERS or words[0] in _KEYS)
