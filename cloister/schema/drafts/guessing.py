"""What a column is, guessed from its values and its name, and why.

Privacy: a guess holds values of the data, and one row may decide any of it.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
from pandas.api import types as pt

from cloister.figures import count_of
from cloister.schema.attributes import (
    DATA_DERIVED,
    EXACT_STEP,
    EXACT_YEARS,
    LARGEST_WHOLE,
    AnyAttribute,
    Date,
    Datetime,
    Float,
    Integer,
)
from cloister.schema.drafts.codes import guess_digits, guess_key, guess_listed, guess_ordered
from cloister.schema.drafts.numbers import (
    BINS,
    MOST_DECIMALS,
    answers_of,
    bins_of,
    bounds_of,
    decimals_of,
    few_numbers,
    fine_step_of,
    guess_clock,
    point_mass,
    step_of,
)
from cloister.schema.drafts.written_forms import (
    ANY_DATE,
    ANY_MOMENT,
    FEWEST_NUMBERS,
    ColumnCells,
    Guess,
    Keys,
    date_format,
    is_ambiguous,
    is_compact_date,
    is_usual,
    moment_format,
    number_format,
    partial_date_format,
)
from cloister.schema.parsing import parse
from cloister.schema.ticks import EPOCH, NANOSECOND_DAYS
from cloister.schema.written_moments import MICROS, in_seconds, is_moved_to_utc, written_micros
from cloister.schema.written_numbers import decimal_places

_BOOLEAN_WORDS = (
    *(("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("T", "F"), ("t", "f")),
    *(("yes", "no"), ("Yes", "No"), ("YES", "NO"), ("Y", "N"), ("y", "n"), ("on", "off")),
    *(("j", "n"), ("J", "N"), ("ja", "nein"), ("Ja", "Nein"), ("oui", "non"), ("Oui", "Non")),
    *(("1", "0"), ("1.0", "0.0"), ("1,0", "0,0")),
)
_FLAGS = ("1", "0")
"""Words of a flag that is stored as a number."""

_FLAG = "0 and 1 alone: a flag; a count needs type integer"

_DIGITS = len(str(LARGEST_WHOLE)) - 1
"""Digits of a drafted bound with its decimals: one less than a spec may have, as it is rounded."""

_MIDNIGHT = 2400
"""The last clock time that is written as hhmm."""

_STEPS = (3600 * MICROS, 60 * MICROS, *(10**places for places in range(6, -1, -1)))
"""Microseconds that all moments of a column may be multiples of."""

_METER_STEPS = tuple(minutes * 60 * MICROS for minutes in (60, 30, 15, 10, 5))
"""The same of readings at even times: of `FEWEST_NUMBERS` different moments or more."""

_MOST_ODD = 0.02
"""The share of values that a remark takes for slips; with more, the column is of its own type."""

_MONTHS_FROM, _YEARS_FROM = 25, 300
"""Days from the first to the last moment from which whole months, or years, are guessed."""

_DAYS_OF_NANOSECONDS = (  # whole days
    EPOCH - dt.timedelta(days=NANOSECOND_DAYS),
    EPOCH + dt.timedelta(days=NANOSECOND_DAYS - 1),
)

_MOST_PARTIAL = 0.5
"""The share of dates without a day at most for a column to be one of dates."""

_ANY_WHOLE = Integer(type="integer", min=0, max=0)
_ANY_NUMBER = Float(type="float", min=0, max=0)
_SHARE_PLACES = 3
"""Decimal places of a share of rows."""

_NARROW: tuple[tuple[str, AnyAttribute], ...] = (
    ("whole numbers", _ANY_WHOLE),
    ("numbers", _ANY_NUMBER),
    ("dates", ANY_DATE),
    ("moments", ANY_MOMENT),
)


def guess(cells: ColumnCells) -> Guess:
    """An attribute that all known cells fit, with bounds that lie outwards."""
    found = next((guess for kind in _KINDS if (guess := kind(cells))), None) or guess_listed(cells)
    nullable = {"nullable": True} if len(cells.known) < cells.rows else {}
    dtype = {"dtype": found.keys["dtype"]} if "dtype" in found.keys else _dtype(cells, nullable)
    odd = _remark(cells)
    own = {"missing": cells.missing} if cells.missing is not None else {}
    gaps = _missing_share(cells) if nullable and found.keys["type"] == "text" else {}
    keys = {**found.keys, **nullable, **gaps, **own, **dtype, "provenance": DATA_DERIVED}
    return replace(found, keys=keys, why=f"{found.why}; {odd}" if odd else found.why)


def _missing_share(cells: ColumnCells) -> Keys:
    """How many of the rows lack a key: of it alone no model is told that it may be missing."""
    share = round(1 - len(cells.known) / cells.rows, _SHARE_PLACES)
    return {"missing_share": max(share, 10**-_SHARE_PLACES)}


def _remark(cells: ColumnCells) -> str:
    """A hint where a few odd cells decided the guess, else the empty text.

    The hint says that nearly all of the values are of a narrower type.
    """
    known = cells.known
    if not cells.is_text or cells.zeros_ahead > _MOST_ODD:
        return ""
    misfits = (
        found for found in _misfits(known, cells.plain) if found[1] <= _MOST_ODD * len(known)
    )
    words, count = next(misfits, ("", 0))
    return f"all but {count:,} of {len(known):,} values are {words}" if count else ""


def _misfits(known: pd.Series, plain: pd.Series) -> Iterator[tuple[str, int]]:
    """Narrow types, the narrowest first, and how many of the values are of another."""
    different = set(known)
    for pair in _BOOLEAN_WORDS:
        yield (
            " or ".join(word for word in pair if word in different),
            int((~known.isin(pair)).sum()),
        )
    for words, attribute in _NARROW:
        yield words, int(parse(plain, attribute)[1].sum())


def _boolean(cells: ColumnCells) -> Guess | None:
    if pt.is_bool_dtype(cells.known.dtype):
        return Guess({"type": "boolean"}, "true or false")
    if not cells.is_text:
        return _native_flag(cells)
    found = set(cells.known.unique())
    for true, false in _BOOLEAN_WORDS:
        words = {"true": true, "false": false}
        if found == {true, false}:
            why = _FLAG if "1" in found else "two words, true and false by what they usually mean"
            usual = (true, false) == ("True", "False")
            return Guess({"type": "boolean", **({} if usual else words)}, why)
    if found <= set(_FLAGS):
        return Guess({"type": "boolean", "true": "1", "false": "0"}, _only(*found))
    return None


def _native_flag(cells: ColumnCells) -> Guess | None:
    if not pt.is_numeric_dtype(cells.known.dtype) or not cells.known.isin([0, 1]).all():
        return None
    words = {"type": "boolean", "true": _FLAGS[0], "false": _FLAGS[1]}
    return Guess({**words, "dtype": cells.own_dtype}, _FLAG)


def _only(word: str) -> str:
    return f"only {word} occurs: guessed a flag; a count needs type integer, or put it in ignore"


def _compact_date(cells: ColumnCells) -> Guess | None:
    texts = cells.digits() if cells.is_text else None
    return _date(cells) if texts is not None and is_compact_date(texts) else None


def _integer(cells: ColumnCells) -> Guess | None:
    typed = cells.typed(_ANY_WHOLE)
    if typed is None or pt.is_float_dtype(cells.known.dtype) or _is_written(cells):
        return None
    answers = answers_of(typed)
    asked = typed[~typed.isin(answers)]
    low, high, why = bounds_of(cells.name, int(asked.min()), int(asked.max()), "whole numbers")
    wide = high - low > 2 * BINS
    single, said = _single_numbers(answers, asked, wide)
    if cells.distinct > BINS and low >= 0 and high <= _MIDNIGHT and (typed % 100 < 60).all():
        why = f"{why}; clock times as hhmm? list their values, or 60 to 99 minutes come out too"
    least, most = _whole_limits(cells)
    step = step_of(asked)
    low, high = max(int(low) // step, -(-least // step)), min(-(-int(high) // step), most // step)
    keys = {"type": "integer", "min": low * step, "max": high * step}
    keys |= {"step": step} if step > 1 else {}
    said += f"; all multiples of {step}" * (step > 1)
    if high - low > 2 * BINS:
        keys |= bins_of(asked, low * step, high * step) | point_mass(typed, 0)
    return Guess(keys | single | _number_format(cells, whole=True), why + said)


def _is_written(cells: ColumnCells) -> bool:
    """Whether numbers would lose what some are written with: zeros ahead, or a plus sign."""
    return cells.zeros_ahead > 0 or cells.are_dialled


def _single_numbers(answers: list[int], asked: pd.Series, wide: bool) -> tuple[Keys, str]:
    """The special values that stand for answers, and those of few numbers far apart; and why."""
    few = few_numbers(asked) if wide else []
    said = f"; {', '.join(map(str, answers))} taken for answers such as not known" * bool(answers)
    said += f"; {count_of(len(few), 'number')} alone, kept single by special" * bool(few)
    return ({"special": [*few, *answers]} if few or answers else {}), said


def _whole_limits(cells: ColumnCells) -> tuple[int, int]:
    """The least and greatest whole number that the storage of a column, and a spec, can hold."""
    limits = (-LARGEST_WHOLE, LARGEST_WHOLE)
    if not pt.is_integer_dtype(cells.known.dtype):
        return limits
    stored = np.iinfo(str(cells.known.dtype).lower())
    return max(limits[0], int(stored.min)), min(limits[1], int(stored.max))


def _float(cells: ColumnCells) -> Guess | None:
    typed = cells.typed(_ANY_NUMBER)
    if typed is None or _is_written(cells):
        return None
    low, high, why = bounds_of(
        cells.name, float(typed.min()), float(typed.max()), "decimal numbers"
    )
    form = _number_format(cells, whole=False)
    places = max(decimals_of(typed), decimal_places(form.get("format")))
    most = 10.0 ** (_DIGITS - places)
    if max(abs(low), abs(high)) > most:
        low, high = max(low, -most), min(high, most)
        why += f"; numbers beyond {most:g} have more digits than a spec can declare"
        if low >= high:
            return None
    keys = {"type": "float", "min": float(low), "max": float(high), "decimals": places}
    step = fine_step_of(typed, places)
    if step is not None:
        least, greatest = (math.floor(low / step) * step, math.ceil(high / step) * step)
        keys |= {"min": round(least, places), "max": round(greatest, places), "step": step}
        why += f"; all multiples of {step:g}"
    return Guess({**keys, **bins_of(typed, low, high), **point_mass(typed, 0.0), **form}, why)


def _number_format(cells: ColumnCells, whole: bool) -> Keys:
    if not cells.is_text:
        return {}
    form = number_format(cells.written_numbers, whole, cells.thousands, cells.unit)
    short = whole or decimal_places(form) <= MOST_DECIMALS
    return {"format": form} if form and short else {}


def _date(cells: ColumnCells) -> Guess | None:
    form = date_format(cells.known) if cells.is_text else None
    attribute = ANY_DATE.model_copy(update={"format": form})
    typed = cells.typed(attribute)
    if typed is None:
        return None
    first, last, period = _period(typed, cells)
    keys = {"type": "date", "min": first, "max": last} | _written_as(form)
    return Guess(keys, _moment_words(f"dates; whole {period}", cells, ANY_DATE, form))


def _partial_date(cells: ColumnCells) -> Guess | None:
    """Dates of which some lack the day, or the month, which no date can: those are missing."""
    distinct = pd.Series(cells.known.unique()) if cells.is_text else None
    form = None if distinct is None else partial_date_format(distinct)
    if form is None:
        return None
    attribute = ANY_DATE.model_copy(update={"format": form})
    typed, partial = parse(cells.known, attribute)
    lacking = f"{int(partial.sum())} of {len(partial)} dates lack the day or the month"
    if partial.mean() > _MOST_PARTIAL:
        why = (
            f"{lacking}: as texts each is a category of its own, and little is learnt; give year, "
            "month and day a column each in the file"
        )
        return Guess({"type": "categorical", "values": sorted(cells.known.unique())}, why)
    first, last, period = _period(typed, cells)
    keys: Keys = {"type": "date", "min": first, "max": last}
    keys |= {"partial": "missing", "nullable": True}
    words = _moment_words(f"dates; whole {period}", cells, ANY_DATE, form)
    why = (
        f"{words}; {lacking}, and are read as missing: to keep them, give year, month and day a "
        "column each in the file"
    )
    return Guess(keys | _written_as(form), why)


def _datetime(cells: ColumnCells) -> Guess | None:
    form = moment_format(cells.known) if cells.is_text else None
    attribute = ANY_MOMENT.model_copy(update={"format": form})
    typed, invalid = parse(cells.known, attribute)
    beyond = int(invalid.sum())
    if beyond == len(typed) or (beyond and cells.is_text):
        return None
    typed = typed[~invalid]
    moments = typed.to_numpy().astype("datetime64[us]").astype(np.int64)
    steps = (*(_METER_STEPS if cells.distinct >= FEWEST_NUMBERS else ()), *_STEPS)
    micros = next(unit for unit in steps if not (moments % unit).any())
    step = in_seconds(max(micros, written_micros(form) if form else 1))
    first, last, period = _period(typed, cells)
    if not {int(first[:4]), int(last[:4])} <= set(EXACT_YEARS):
        step = max(step, EXACT_STEP)
    digits = "." + "9" * attribute.model_copy(update={"step": step}).places
    last = f"{last}T23:59:59{digits.rstrip('.')}"
    keys: Keys = {"type": "datetime", "min": f"{first}T00:00:00", "max": last}
    keys |= {"step": step} if step != 1 else {}
    words = _moment_words(f"moments; whole {period}", cells, ANY_MOMENT, form)
    if beyond:
        words += (
            f"; {beyond} of no year from {dt.MINYEAR} to {dt.MAXYEAR}, which cannot be declared"
        )
    return Guess(keys | _written_as(form), words)


def _period(typed: pd.Series, cells: ColumnCells) -> tuple[str, str, str]:
    """The first and last day of the whole years, months or days that hold moments (n,); which.

    No day is beyond those that the storage of the column can hold.
    """
    narrow = str(cells.known.dtype).startswith("datetime64[ns")
    least, most = _DAYS_OF_NANOSECONDS if narrow else (dt.date.min, dt.date.max)
    first, last = typed.min().date(), typed.max().date()
    days = (last - first).days
    if days >= _YEARS_FROM:
        start, end = dt.date(first.year, 1, 1), dt.date(last.year, 12, 31)
        return max(start, least).isoformat(), min(end, most).isoformat(), "years"
    if days < _MONTHS_FROM:
        return first.isoformat(), last.isoformat(), "days"
    end = last.replace(day=calendar.monthrange(last.year, last.month)[1])
    return max(first.replace(day=1), least).isoformat(), min(end, most).isoformat(), "months"


def _written_as(form: str | None) -> Keys:
    return {"format": form} if form and not is_usual(form) else {}


def _moment_words(
    what: str, cells: ColumnCells, attribute: Date | Datetime, form: str | None
) -> str:
    words = f"{what} that hold those of the data: declare those covered"
    if cells.is_text and form is None:
        return f"{words}; not all are written alike, and they come out in one form"
    if form and is_moved_to_utc(form):
        return f"{words}; of several distances from UTC, and they come out in UTC"
    if form and is_ambiguous(cells.known, attribute, form):
        return f"{words}; day and month may be the other way round: check format"
    return words


_KINDS = (
    *(guess_ordered, _boolean, guess_digits, _compact_date, _integer, _float),
    *(guess_clock, _date, _partial_date, _datetime, guess_key),
)


def _dtype(cells: ColumnCells, nullable: Keys) -> Keys:
    """The pandas dtype where it is not the usual one of its type, so that a release has it too."""
    name = str(cells.known.dtype)
    unusual = re.fullmatch(r"U?Int(8|16|32)|UInt64|float32|datetime64\[(ms|us|ns)\]|category", name)
    if unusual is None:
        return {}
    return {"dtype": name if nullable or not name.startswith(("I", "U")) else name.lower()}
