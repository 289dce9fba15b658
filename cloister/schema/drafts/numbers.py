"""Bounds, decimal places and point masses of drafted numbers, their marks, and clocks.

The marks of a CSV file, decimal and thousands, are those by which most of its cells are numbers.

Privacy: guessed from the data; one row may decide any of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.schema.attributes import Float, Integer
from cloister.schema.domain import GROWTH
from cloister.schema.drafts.codes import public_range
from cloister.schema.drafts.written_forms import ColumnCells, Guess, Keys, half_of_day
from cloister.schema.parsing import plain_numbers
from cloister.schema.spec import SourceSpec
from cloister.schema.written_moments import SECONDS_OF_DAY, clock_unit
from cloister.schema.written_numbers import number_pattern

BINS = 50
"""Bins of a guessed number; whole numbers get them where the range is wider than twice as many."""

_MOST_BINS = 500
"""Bins of a guessed number at most, where the bounds that its name has lie far outside the data."""

_LOG_BINS = (BINS, 100, 200, _MOST_BINS)
"""Bins of a logarithmic scale, the fewest first."""

_ROWS_A_BIN = 20
"""Values at least for each bin of more than the fewest: at epsilon 1 the quantiles of 6,000 amounts
came out nearer with 200 bins than with 50, those of 1,500 farther."""

_AT_ZERO = 0.1
"""The share of the values that the bin at zero holds at most, if there may be so many bins: values
inside a bin come out even."""

_WIDE = 2
"""Times the span of the data that bounds are apart, from which a number gets more bins."""

_ROUND_STEPS = (100_000, 10_000, 1_000, 100, 10, 1)
"""Steps of rounded whole numbers."""

_FEWEST_MULTIPLES = 20
"""Different numbers at least, all of them multiples of a step: of others that fails by chance once
in 10^20 columns."""

_SURE = math.log(1e6)
"""Of other numbers all are multiples of a step by chance once in a million columns."""

_EXACT = 2.0**53
"""Whole numbers below are exact as floats."""

_BULK, _FAR = 0.9, 10
"""A tail is long where this share of the values is so many times nearer to zero than the last."""

_BOTH_SIDES, _FAR_FROM_ZERO = 0.1, 3
"""The same, where so large a share of the values lies on either side of zero: bins that are finest
there had a half to a third of the error of equal ones for signed lognormals and differences of
such, and none had more down to normal distributions, of which the last is 2.3 times as far."""

_POINT_MASS = 0.1
"""The share of zeros above which zero is guessed a special value."""

MOST_DECIMALS = 6
"""Decimal places that a guessed grid has at most, if that tells the values apart."""

_FINEST = 12
"""Decimal places that a grid can have."""

_LEAST, _SMALL, _FINE = 0.01, 10, 1000
"""A grid has this many steps below all but a share of the values, and from least to greatest."""

_ANSWERS = frozenset(
    (
        *(-1, -2, -7, -8, -9, -77, -88, -98, -99, -999, 8, 9, 77, 88, 97, 98, 99),
        *(777, 888, 997, 998, 999, 7777, 8888, 9997, 9998, 9999, 99999, 999999),
    )
)
"""Numbers that usually stand for no answer, not known, or does not apply."""

_FEWEST_ANSWERS = 3
"""Rows of such a number at least: fewer may be slips."""

_SCALE = 3
"""Numbers beside a far one at least, for them to be the scale of a question."""

_FEW, _ROWS_EACH = 12, 20
"""Numbers of a wide range are kept single if so few, each in so many rows on average."""

_STEPS = 5
"""Round steps from the least to the greatest value, at least, to which bounds are rounded."""

_ROUNDED = "bounds are those of the data, rounded outwards: declare what is possible"


def bounds_of(name: str, low: float, high: float, what: str) -> tuple[float, float, str]:
    """Bounds by the name of a column, else those of the data moved outwards; and why."""
    known = public_range(name, low, high)
    if known:
        return *known, f"{what}; bounds as its name has them usually: check that it means that"
    return *_outwards(low, high), f"{what}; {_ROUNDED}"


def _outwards(low: float, high: float) -> tuple[float, float]:
    """Bounds moved outwards to multiples of 1 or 5 times a power of ten, a part of their span."""
    span = high - low or max(abs(high), 1)
    power = math.floor(math.log10(span / _STEPS))
    if isinstance(low, int):
        power = max(power, 0)
    step = Fraction(10) ** power * (5 if 5 * 10.0**power <= span / _STEPS else 1)
    below, above = (math.floor(Fraction(low) / step), math.ceil(Fraction(high) / step))
    return float(below * step), float(above * step)


def decimals_of(typed: pd.Series) -> int:
    """The decimal places of all values (n,): six at most, more where values are far below one."""
    numbers = typed.to_numpy(dtype=np.float64)
    places = range(MOST_DECIMALS)
    fitting = (p for p in places if np.array_equal(np.round(numbers, p), numbers))
    found = next(fitting, None)
    return max(MOST_DECIMALS, _telling_decimals(numbers)) if found is None else found


def _telling_decimals(numbers: np.ndarray) -> int:
    """Decimal places by which nearly all of the values are told from zero and from each other.

    Not all ``numbers`` are zero. A grid has no more places than the finest.
    """
    sizes = np.abs(numbers[numbers != 0])
    steps = [_SMALL / float(np.quantile(sizes, _LEAST)), _FINE / (float(np.ptp(numbers)) or 1)]
    return math.ceil(math.log10(min(max(steps), 10.0**_FINEST)))


def answers_of(typed: pd.Series) -> list[int]:
    """Numbers far from all others that usually stand for no answer, such as 99 beside 0 to 10."""
    counts = typed.astype("int64").value_counts()
    apart = [n for n in counts.index if n in _ANSWERS and counts[n] >= _FEWEST_ANSWERS]
    others = counts.index[counts.index >= 0]
    below = [int(n) for n in apart if n < 0]
    if below and len(others) > 1 and len(others) + len(below) == len(counts):
        return sorted(below)
    return _far_above(counts.index.to_numpy(), apart)


def _far_above(numbers: np.ndarray, answers: list[int]) -> list[int]:
    """Of the answers the greatest numbers, if they are as far from the rest as that is wide."""
    above: list[int] = []
    for number in sorted(map(int, numbers), reverse=True):
        if number not in answers:
            break
        above.append(number)
    rest = numbers[~np.isin(numbers, above)]
    far = len(rest) >= _SCALE and above and min(above) - rest.max() >= np.ptp(rest)
    return sorted(above) if far else []


def few_numbers(typed: pd.Series) -> list[int]:
    """The numbers of a column that holds few, each in many rows; none if it holds more."""
    found = typed.unique()
    few = 1 < len(found) <= min(_FEW, len(typed) // _ROWS_EACH)
    return sorted(map(int, found)) if few else []


def step_of(typed: pd.Series) -> int:
    """The greatest power of ten of which all whole numbers (n,) are multiples; 1 of few numbers."""
    numbers = typed.drop_duplicates().to_numpy(dtype="int64")
    if len(numbers) < _FEWEST_MULTIPLES:
        return 1
    return int(next(step for step in _ROUND_STEPS if not (numbers % step).any()))


def fine_step_of(typed: pd.Series, places: int) -> float | None:
    """The greatest step of which all numbers (n,) of some decimal places are multiples.

    None if it is one of the last place, or of too few numbers to tell.
    """
    units = np.rint(typed.drop_duplicates().to_numpy(dtype=np.float64) * 10.0**places)
    units = units[units != 0]
    if np.abs(units).max(initial=0) >= _EXACT:
        return None
    step = int(np.gcd.reduce(units.astype(np.int64))) if len(units) else 1
    told = len(units) * math.log(step) >= _SURE
    return round(step / 10**places, places) if step > 1 and told else None


def bins_of(typed: pd.Series, low: float, high: float) -> dict[str, Any]:
    """Bins of a range: equal ones, or growing away from zero where few values lie far out.

    Of growing ones so many that the one at zero does not hold a great part of the values.

    Of equal ones about as many lie in the span of the data as if that were the range.
    """
    distance, span = typed.abs(), float(typed.max()) - float(typed.min())
    both = min(float((typed < 0).mean()), float((typed > 0).mean())) >= _BOTH_SIDES
    far = _FAR_FROM_ZERO if both else _FAR
    if float(distance.quantile(_BULK)) * far < float(distance.max()):
        return {"bins": _bins_from_zero(distance, low, high), "scale": "log"}
    if span == 0 or high - low <= _WIDE * span:
        return {"bins": BINS}
    return {"bins": min(_MOST_BINS, BINS * math.ceil((high - low) / span))}


def _bins_from_zero(distance: pd.Series, low: float, high: float) -> int:
    """Bins of a logarithmic scale, of values at some distances (n,) from zero."""
    span, sides = max(abs(low), abs(high)), 1 + (low < 0 < high)
    fewest, *more = _LOG_BINS
    choices = [fewest, *(bins for bins in more if bins * _ROWS_A_BIN <= len(distance))]
    for bins in choices:
        nearest = span * (GROWTH ** (sides / bins) - 1) / (GROWTH - 1)
        if float(((distance > 0) & (distance < nearest)).mean()) <= _AT_ZERO:
            return bins
    return choices[-1]


def point_mass(typed: pd.Series, value: float) -> dict[str, Any]:
    """The key of a special value that many rows have, if it is one."""
    return {"special": [value]} if float(typed.eq(value).mean()) > _POINT_MASS else {}


_TEXTS = r"[0-9]{1,6}:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
_TWELVE = r"(?:0?[1-9]|1[0-2]):[0-5][0-9](?::[0-5][0-9])? ?(?:[AP]M|[ap]m)"
_MOST_DIGITS = 6
"""Digits of a second's fraction that are written; finer ones are rounded."""

_MINUTE = 60  # seconds
_UNITS = {_MINUTE: "minutes", 1: "seconds"}
_LENGTH = "a length of time in seconds"


def guess_clock(cells: ColumnCells) -> Guess | None:
    """Numbers of minutes or seconds, where all texts are times such as 08:30 or 8:30 AM."""
    texts = cells.known.drop_duplicates() if cells.is_text else None
    form = None if texts is None else _form(texts)
    if form is None:
        return None
    whole = Integer(type="integer", min=0, max=0, format=form) if "f" not in form else None
    typed = cells.typed(whole or Float(type="float", min=0, max=0, format=form))
    if typed is None:
        return None
    last, why = _bounds(typed, clock_unit(form))
    if whole is None:
        places = int(form[-2])
        keys: Keys = {"type": "float", "min": 0.0, "max": last + 1 - 10.0**-places}
        return Guess({**keys, "decimals": places, "format": form}, why)
    step = _MINUTE if "%S" in form and (typed % _MINUTE == 0).all() else 1
    steps = {"step": step} if step > 1 else {}
    keys = {"type": "integer", "min": 0, "max": last // step * step, **steps, "format": form}
    return Guess(keys, why)


def _bounds(typed: pd.Series, unit: int) -> tuple[int, str]:
    """The greatest whole number of a day, or of greater ones rounded up; and why."""
    last, words = SECONDS_OF_DAY // unit - 1, f"as numbers of {_UNITS[unit]}"
    if float(typed.max()) < last + 1:
        return last, f"times of day, {words}; bounds are those of a day"
    _, high, why = bounds_of("", 0, int(typed.max()) + 1, f"lengths of time, {words}")
    return int(high), why


def in_native_times(guess: Guess, dtype: str) -> Guess:
    """The guess of a column that a file stores as times, lengths of time or moments in a zone."""
    if guess.keys["type"] == "datetime":
        return _stored_as(guess, dtype, f"{guess.why}; in UTC here, released in the file's zone")
    if guess.keys["type"] not in ("integer", "float"):
        return guess
    what = guess.why if "format" in guess.keys else f"{_LENGTH}; {guess.why}"
    return _stored_as(guess, dtype, what)


def _stored_as(guess: Guess, dtype: str, why: str) -> Guess:
    keys = {name: key for name, key in guess.keys.items() if name != "dtype"}
    at = list(keys).index("provenance")
    ordered = [*list(keys.items())[:at], ("dtype", dtype), *list(keys.items())[at:]]
    return replace(guess, keys=dict(ordered), why=why)


def _form(texts: pd.Series) -> str | None:
    """The form of texts of times: as fine as the finest of them; None if not all are times."""
    short = "" if (texts.str.find(":") > 1).all() else "-"
    seconds = ":%S" if (texts.str.count(":") > 1).any() else ""
    if texts.str.fullmatch(_TWELVE).all():
        space = " " if texts.str.contains(" ", regex=False).any() else ""
        return f"%{short}I:%M{seconds}{space}{half_of_day(texts)}"
    if not texts.str.fullmatch(_TEXTS).all():
        return None
    fractions = texts.str.extract(r"\.([0-9]+)$")[0].dropna()
    if fractions.str.contains("[1-9]").any():
        return f"%{short}H:%M:%S.%{min(int(fractions.str.len().max()), _MOST_DIGITS)}f"
    return f"%{short}H:%M{seconds}"


Marks = tuple[str, str | None]

_MARKS: tuple[Marks, ...] = (
    (".", None),
    (".", ","),
    (",", None),
    (",", "."),
    (".", "'"),
    (".", " "),
    (",", " "),
    (",", "\u00a0"),
    (",", "\u202f"),
)
"""Decimal and thousands marks; of two that read as many different numbers, the first is taken."""

_MARKS_BESIDE_SEMICOLONS = (_MARKS[0], *sorted(_MARKS[1:], key=lambda marks: marks[0] != ","))
"""The same where decimal commas are likelier, since cells are not divided by commas."""


def likeliest_marks(columns: Sequence[pd.Series], delimiter: str) -> Marks:
    """The marks by which columns of the most different numbers are numbers throughout.

    One column of many amounts tells more than several of ``1.0`` and ``0.0``. Files with semicolons
    have them for the sake of decimal commas.
    """
    distinct = [_texts(cells) for cells in columns]

    def numeric(marks: Marks) -> int:
        return sum(len(texts) for texts in distinct if _are_numbers(texts, marks))

    return max(_MARKS_BESIDE_SEMICOLONS if delimiter == ";" else _MARKS, key=numeric)


def _are_numbers(texts: pa.Array, marks: Marks) -> bool:
    """Whether all texts are numbers in these marks; no group of thousands follows a zero alone."""
    known = pc.match_substring_regex(texts, number_pattern(*marks))
    if len(texts) == 0 or not pc.all(known).as_py():
        return False
    if marks[1] is None:
        return True
    below_one = pc.match_substring_regex(texts, rf"^\s*[+-]?0+{re.escape(marks[1])}")
    return not pc.any(below_one).as_py()


def in_plain_marks(cells: pd.Series, source: SourceSpec) -> pd.Series:
    """A column with its numbers as ``1234.5``, if all are numbers; else as it is."""
    marks = source.decimal, source.thousands
    if marks == _MARKS[0] or not _are_numbers(_texts(cells), marks):
        return cells
    return plain_numbers(cells, source)


def has_foreign_marks(cells: pd.Series, source: SourceSpec) -> bool:
    """Whether all cells of a column are numbers as ``1234.5``, and not in the marks of the file."""
    texts = _texts(cells)
    own = _are_numbers(texts, (source.decimal, source.thousands))
    return not own and _are_numbers(texts, _MARKS[0])


def _texts(cells: pd.Series) -> pa.Array:
    """The different known cells (n,)."""
    return pa.array(distinct_cells(cells), pa.large_string())


def distinct_cells(cells: pd.Series) -> pd.Series:
    """The different known cells of a column."""
    return pd.Series(cells.dropna().unique(), dtype="str")
