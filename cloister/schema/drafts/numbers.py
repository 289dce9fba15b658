"""Whole and decimal numbers of a draft: bounds, grids, bins, point masses, and their format.

Privacy: guessed from the data; one row may decide any of it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from cloister.figures import count_of
from cloister.schema.attributes import LARGEST_WHOLE, MOST_MULTIPLES, Float, Integer
from cloister.schema.drafts.columns import ColumnCells, Guess, Keys, public_range
from cloister.schema.partition import GROWTH
from cloister.schema.written_numbers import NO_UNIT, Unit, decimal_places, places_pattern, with_unit

ANY_WHOLE = Integer(type="integer", min=0, max=0)
ANY_NUMBER = Float(type="float", min=0, max=0)

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

_FEWEST_ROUND, _ROUND_SHARE = 200, 0.1
"""Numbers at least among which some are round, and the share of all that chance does not explain:
of two hundred it is five deviations even of a half."""

_FEWEST_STEPS = 5
"""Different round numbers at least: one that is frequent is no rounding."""

_MOST_ROUNDINGS = 4
"""Roundings of a number at most."""

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
"""Decimal places that a guessed grid has at most, if that distinguishes the values."""

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


_DIGITS = len(str(LARGEST_WHOLE)) - 1
"""Digits of a drafted bound with its decimals: one less than a spec may have, as it is rounded."""

_MIDNIGHT = 2400
"""The last clock time that is written as hhmm."""

_NO_EXPONENT = r"[^A-Za-z]*[0-9]"


def guess_whole(cells: ColumnCells) -> Guess | None:
    """Whole numbers, on a grid of hundreds if all are; single those that stand for no answer."""
    typed = None if pt.is_float_dtype(cells.known.dtype) else cells.typed(ANY_WHOLE)
    if typed is None or cells.is_written:
        return None
    answers = answers_of(typed)
    counted = typed[~typed.isin(answers)]
    low, high, why = bounds_of(cells.name, int(counted.min()), int(counted.max()), "whole numbers")
    few = few_numbers(counted) if high - low > 2 * BINS else []
    if cells.distinct > BINS and low >= 0 and high <= _MIDNIGHT and (typed % 100 < 60).all():
        why += "; clock times as hhmm? list their values, or 60 to 99 minutes come out too"
    if answers:
        why += f"; {', '.join(map(str, answers))} taken for answers such as not known"
    if few:
        why += f"; {count_of(len(few), 'number')} alone, kept single by special"
    step = step_of(counted)
    least, most = _whole_limits(cells)
    low, high = max(int(low) // step, -(-least // step)), min(-(-int(high) // step), most // step)
    keys: Keys = {"type": "integer", "min": low * step, "max": high * step}
    if step > 1:
        keys["step"] = step
        why += f"; all multiples of {step}"
    if high - low > 2 * BINS:
        keys |= bins_of(counted, low * step, high * step) | point_mass(typed, 0)
        rounded, words = _rounded(counted, step, (high - low) * step)
        keys, why = keys | rounded, why + words
    if few or answers:
        keys["special"] = [*few, *answers]
    return Guess(keys | _format_of(cells, whole=True), why)


def _whole_limits(cells: ColumnCells) -> tuple[int, int]:
    """The least and greatest whole number that the storage of a column, and a spec, can hold."""
    if not pt.is_integer_dtype(cells.known.dtype):
        return -LARGEST_WHOLE, LARGEST_WHOLE
    stored = np.iinfo(str(cells.known.dtype).lower())
    return max(-LARGEST_WHOLE, int(stored.min)), min(LARGEST_WHOLE, int(stored.max))


def guess_decimal(cells: ColumnCells) -> Guess | None:
    """Decimal numbers, on a grid of their places, or of a step of which all are multiples."""
    typed = cells.typed(ANY_NUMBER)
    if typed is None or cells.is_written:
        return None
    ends = float(typed.min()), float(typed.max())
    low, high, why = bounds_of(cells.name, *ends, "decimal numbers")
    form = _format_of(cells, whole=False)
    decimals = max(decimals_of(typed), decimal_places(form.get("format")))
    most = 10.0 ** (_DIGITS - decimals)
    if max(abs(low), abs(high)) > most:
        low, high = max(low, -most), min(high, most)
        why += f"; numbers beyond {most:g} have more digits than a spec can declare"
        if low >= high:
            return None
    keys: Keys = {"type": "float", "min": float(low), "max": float(high), "decimals": decimals}
    step = fine_step_of(typed, decimals)
    if step is not None:
        least, greatest = (math.floor(low / step) * step, math.ceil(high / step) * step)
        keys |= {"min": round(least, decimals), "max": round(greatest, decimals), "step": step}
        why += f"; all multiples of {step:g}"
    grid = 10.0**-decimals if step is None else step
    rounded, words = _rounded(typed, grid, high - low)
    keys |= {**bins_of(typed, low, high), **point_mass(typed, 0.0), **rounded, **form}
    return Guess(keys, why + words)


def _rounded(typed: pd.Series, grid: float, span: float) -> tuple[Keys, str]:
    """The key of roundings that numbers on a grid have, and words on it; nothing without any."""
    steps = roundings_of(typed.to_numpy(dtype=np.float64), grid)
    if not steps or span / steps[0] > MOST_MULTIPLES:
        return {}, ""
    whole = isinstance(grid, int)
    words = f"; often multiples of {' and of '.join(f'{step:g}' for step in steps)}"
    return {"rounded": [round(step) if whole else round(step, _FINEST) for step in steps]}, words


def _format_of(cells: ColumnCells, whole: bool) -> Keys:
    if not cells.is_text:
        return {}
    form = number_format(cells.written_numbers, whole, cells.thousands, cells.unit)
    short = whole or decimal_places(form) <= MOST_DECIMALS
    return {"format": form} if form and short else {}


def number_format(
    texts: pd.Series, whole: bool, thousands: str | None, unit: Unit = NO_UNIT
) -> str | None:
    """The format by which numbers come out as they are written; None if the usual one does.

    ``texts`` (n,) are distinct, and lack the ``unit``, which is a part of the format.
    """
    decimals = texts.str.extract(places_pattern(thousands))["places"].str.len()
    alone = _format_alone(texts, decimals, whole, thousands)
    if unit == NO_UNIT:
        return alone
    most = decimals.max()
    usual = "%d" if whole or pd.isna(most) else f"%.{int(most)}f"
    return with_unit(alone or usual, unit)


def _format_alone(
    texts: pd.Series, decimals: pd.Series, whole: bool, thousands: str | None
) -> str | None:
    """The format of texts (n,) of so many decimal places, missing where there is no mark."""
    group = "'" if thousands and texts.str.contains(thousands, regex=False).any() else ""
    short = decimals.isna()
    zeros = texts[~short].str.endswith("0").any()
    if not short.any() and decimals.nunique() == 1:
        return f"%{group}.{int(decimals.iloc[0])}f" if whole or group or zeros else None
    if whole:
        return "%'d" if group else None
    plain = texts[short].str.fullmatch(_NO_EXPONENT).all()
    return f"%{group}g" if (group or short.any()) and plain and not zeros else None


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
    fewest = next(fitting, None)
    return max(MOST_DECIMALS, _telling_decimals(numbers)) if fewest is None else fewest


def _telling_decimals(numbers: np.ndarray) -> int:
    """Decimal places that distinguish nearly all values from zero and from each other.

    Not all ``numbers`` are zero. A grid has no more places than the finest.
    """
    sizes = np.abs(numbers[numbers != 0])
    steps = [_SMALL / float(np.quantile(sizes, _LEAST)), _FINE / (float(np.ptp(numbers)) or 1)]
    return math.ceil(math.log10(min(max(steps), 10.0**_FINEST)))


def answers_of(typed: pd.Series) -> list[int]:
    """Numbers far from all others that usually stand for no answer, such as 99 beside 0 to 10."""
    counts = typed.astype("int64").value_counts()
    apart = [n for n in counts.index if n in _ANSWERS and counts[n] >= _FEWEST_ANSWERS]
    usual = counts.index[counts.index >= 0]
    below = [int(n) for n in apart if n < 0]
    if below and len(usual) > 1 and len(usual) + len(below) == len(counts):
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
    numbers = typed.unique()
    few = 1 < len(numbers) <= min(_FEW, len(typed) // _ROWS_EACH)
    return sorted(map(int, numbers)) if few else []


def step_of(typed: pd.Series) -> int:
    """The greatest power of ten of which all whole numbers (n,) are multiples; 1 of few numbers."""
    numbers = typed.drop_duplicates().to_numpy(dtype="int64")
    if len(numbers) < _FEWEST_MULTIPLES:
        return 1
    return int(next(step for step in _ROUND_STEPS if not (numbers % step).any()))


def fine_step_of(typed: pd.Series, decimals: int) -> float | None:
    """The greatest step of which all numbers (n,) of some decimal places are multiples.

    None if it is one of the last place, or of too few numbers to tell.
    """
    units = np.rint(typed.drop_duplicates().to_numpy(dtype=np.float64) * 10.0**decimals)
    units = units[units != 0]
    if np.abs(units).max(initial=0) >= _EXACT:
        return None
    step = int(np.gcd.reduce(units.astype(np.int64))) if len(units) else 1
    sure = len(units) * math.log(step) >= _SURE
    return round(step / 10**decimals, decimals) if step > 1 and sure else None


def roundings_of(numbers: np.ndarray, grid: float) -> list[float]:
    """The steps of which many more of some numbers (n,) are multiples than by chance.

    The coarsest is the last. Numbers are whole multiples of ``grid``. Steps are ones and fives
    times powers of ten; one is looked for among the multiples of the one before. A value that many
    rows have is no rounding.
    """
    units, rows = np.unique(np.rint(numbers / grid), return_counts=True)
    usual = (units != 0) & (np.abs(units) < _EXACT) & (rows <= _ROUND_SHARE * len(numbers))
    units, rows = units[usual], rows[usual]
    steps, before = list[int](), 1
    for step in _steps_of(grid):
        multiple = units % before == 0
        among, further = rows[multiple].sum(), rows[units % step == 0].sum()
        few = among < _FEWEST_ROUND or (units % step == 0).sum() < _FEWEST_STEPS
        if few or further - among * before / step < _ROUND_SHARE * len(numbers):
            continue
        if steps and among - further < _ROUND_SHARE * len(numbers):
            steps.pop()  # nearly all of its multiples are of the coarser step too
        steps, before = [*steps, step], step
    return [step * grid for step in steps[-_MOST_ROUNDINGS:]]


def _steps_of(grid: float) -> list[int]:
    """Ones and fives times powers of ten, in units of a grid that they are multiples of."""
    steps = (times * 10.0**power / grid for power in range(-_FINEST, _DIGITS) for times in (1, 5))
    return [round(step) for step in steps if step > 1 and math.isclose(step, round(step))]


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
