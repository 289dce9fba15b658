"""Dates, moments and clocks of a draft: the form of all texts, and their bounds.

Privacy: guessed from the data; one row may decide any of it.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from cloister.arrays import Booleans
from cloister.schema import written_moments
from cloister.schema.attributes import EXACT_STEP, EXACT_YEARS, Date, Datetime, Float, Integer
from cloister.schema.drafts.columns import FEWEST_NUMBERS, ColumnCells, Guess, Keys
from cloister.schema.drafts.numbers import bounds_of
from cloister.schema.parsing import lacks_parts, parse
from cloister.schema.ticks import EPOCH, NANOSECOND_DAYS

ANY_DATE = Date(type="date", min=dt.date.min, max=dt.date.max)
ANY_MOMENT = Datetime(type="datetime", min=dt.datetime.min, max=dt.datetime.max)  # noqa: DTZ901

_COMPACT = "%Y%m%d"
"""A form without marks: what is left of it without a part is any number."""

DAYS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y"),
    *("%m-%d-%Y", "%-d/%-m/%Y", "%-m/%-d/%Y", "%-d.%-m.%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y"),
    *("%-d/%-m/%y", "%-m/%-d/%y", "%d-%b-%Y", "%d %b %Y", "%-d %b %Y", "%d-%b-%y", "%b %d, %Y"),
    *("%b %-d, %Y", "%d %B %Y", "%-d %B %Y", "%-d. %B %Y", "%B %d, %Y", "%B %-d, %Y", _COMPACT),
    *("%d/%b/%Y", "%-d-%b-%Y", "%Y-%b-%d"),
)
"""Forms of days; of two that all texts have, the first is taken."""

MONTHS = (
    *("%Y-%m", "%Y/%m", "%m/%Y", "%m-%Y", "%-m/%Y", "%b %Y", "%B %Y", "%b-%Y", "%B-%Y", "%b. %Y"),
    *("%b, %Y", "%B, %Y", "%Y %b", "%Y-%b", "%Y %B"),
)
"""Forms of months; years have four digits, since others may be days."""

_TWELVE = [f"{h}:%M{seconds}" for seconds in ("", ":%S") for h in ("%I", "%-I")]
_FRACTIONS = (".000", ".000000", ".%3f", ".%6f", ".%f")
CLOCKS = (
    *("T%H:%M:%S", " %H:%M:%S", "T%H:%M", " %H:%M", " %-H:%M", " %-H:%M:%S", "T%H%M%S"),
    *(f" {clock}{space}%p" for space in (" ", "") for clock in _TWELVE),
    *(f"{start}%H:%M:%S{digits}" for digits in _FRACTIONS for start in "T "),
    ":%H:%M:%S",
)
"""Forms of clocks after a day."""

_MIDNIGHTS = ("T00:00:00", " 00:00:00", "T00:00", " 00:00", " 0:00", "T00:00:00.000")
ZONES = ("", "Z", "+00:00", "+0000", "+00", " +0000")
_OFFSET = re.compile("[+-][01][0-9]:?[0-5][0-9]$")
"""A distance from UTC at the end of a moment."""

_USUAL = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S")
"""What is written without a format."""

_EXCHANGED = (("%d", "%m"), ("%-d", "%-m"))

_STEPS = (
    3600 * written_moments.MICROS,
    60 * written_moments.MICROS,
    *(10**places for places in range(6, -1, -1)),
)
"""Microseconds that all moments of a column may be multiples of."""

_METER_STEPS = tuple(minutes * 60 * written_moments.MICROS for minutes in (60, 30, 15, 10, 5))
"""The same of readings at even times: of `FEWEST_NUMBERS` different moments or more."""

_MONTHS_FROM, _YEARS_FROM = 25, 300
"""Days from the first to the last moment from which whole months, or years, are guessed."""

_DAYS_OF_NANOSECONDS = (  # whole days
    EPOCH - dt.timedelta(days=NANOSECOND_DAYS),
    EPOCH + dt.timedelta(days=NANOSECOND_DAYS - 1),
)

_MOST_PARTIAL = 0.5
"""The share of dates without a day at most for a column to be one of dates."""


def guess_date(cells: ColumnCells) -> Guess | None:
    """Dates, and months, in one form if they are texts of one."""
    form = _date_format(cells.known) if cells.is_text else None
    typed = cells.typed(ANY_DATE.model_copy(update={"format": form}))
    if typed is None:
        return None
    return _dates(typed, cells, form)


def _dates(typed: pd.Series, cells: ColumnCells, form: str | None, **keys: object) -> Guess:
    first, last, period = _period(typed, cells)
    written = {"type": "date", "min": first, "max": last} | keys | _written_as(form)
    return Guess(written, _why(f"dates; whole {period}", cells, ANY_DATE, form))


def is_compact_date(cells: ColumnCells) -> bool:
    """Whether texts of digits are all dates, as in 20240131."""
    return cells.is_text and not _misfits(cells.known, ANY_DATE, _COMPACT).any()


def guess_partial_date(cells: ColumnCells) -> Guess | None:
    """Dates of which some lack the day or the month; these are read as missing."""
    form = _partial_format(pd.Series(cells.known.unique())) if cells.is_text else None
    if form is None:
        return None
    typed, partial = parse(cells.known, ANY_DATE.model_copy(update={"format": form}))
    lacking = f"{int(partial.sum())} of {len(partial)} dates lack the day or the month"
    apart = "give year, month and day a column each in the file"
    if partial.mean() > _MOST_PARTIAL:
        why = f"{lacking}: as texts each is a category of its own, and little is learnt; {apart}"
        return Guess({"type": "categorical", "values": sorted(cells.known.unique())}, why)
    guess = _dates(typed, cells, form, partial="missing", nullable=True)
    why = f"{guess.why}; {lacking}, and are read as missing: to keep them, {apart}"
    return replace(guess, why=why)


def guess_moment(cells: ColumnCells) -> Guess | None:
    """Moments, on the coarsest grid that holds all; of native ones some may be beyond all years."""
    form = _moment_format(cells.known) if cells.is_text else None
    attribute = ANY_MOMENT.model_copy(update={"format": form})
    typed, invalid = parse(cells.known, attribute)
    beyond = int(invalid.sum())
    if beyond == len(typed) or (beyond and cells.is_text):
        return None
    typed = typed[~invalid]
    moments = typed.to_numpy().astype("datetime64[us]").astype(np.int64)
    steps = (*(_METER_STEPS if cells.distinct >= FEWEST_NUMBERS else ()), *_STEPS)
    micros = next(unit for unit in steps if not (moments % unit).any())
    step = written_moments.in_seconds(
        max(micros, written_moments.written_micros(form) if form else 1)
    )
    first, last, period = _period(typed, cells)
    if not {int(first[:4]), int(last[:4])} <= set(EXACT_YEARS):
        step = max(step, EXACT_STEP)
    digits = "." + "9" * attribute.model_copy(update={"step": step}).places
    last = f"{last}T23:59:59{digits.rstrip('.')}"
    keys: Keys = {"type": "datetime", "min": f"{first}T00:00:00", "max": last}
    keys |= {"step": step} if step != 1 else {}
    why = _why(f"moments; whole {period}", cells, ANY_MOMENT, form)
    if beyond:
        why += f"; {beyond} of no year from {dt.MINYEAR} to {dt.MAXYEAR}, which cannot be declared"
    return Guess(keys | _written_as(form), why)


def _period(typed: pd.Series, cells: ColumnCells) -> tuple[str, str, str]:
    """The first and last day of the whole years, months or days that hold moments (n,); which.

    No day is beyond those that the storage of the column can hold.
    """
    narrow = str(cells.known.dtype).startswith("datetime64[ns")
    least, most = _DAYS_OF_NANOSECONDS if narrow else (dt.date.min, dt.date.max)
    first, last, period = typed.min().date(), typed.max().date(), "days"
    days = (last - first).days
    if days >= _YEARS_FROM:
        first, last, period = dt.date(first.year, 1, 1), dt.date(last.year, 12, 31), "years"
    elif days >= _MONTHS_FROM:
        last = last.replace(day=calendar.monthrange(last.year, last.month)[1])
        first, period = first.replace(day=1), "months"
    return max(first, least).isoformat(), min(last, most).isoformat(), period


def _written_as(form: str | None) -> Keys:
    return {"format": form} if form and form not in _USUAL else {}


def _why(what: str, cells: ColumnCells, attribute: Date | Datetime, form: str | None) -> str:
    words = f"{what} that hold those of the data: declare those covered"
    if cells.is_text and form is None:
        return f"{words}; not all are written alike, and they come out in one form"
    if form and written_moments.is_moved_to_utc(form):
        return f"{words}; of several distances from UTC, and they come out in UTC"
    if form and _is_ambiguous(cells.known, attribute, form):
        return f"{words}; day and month may be the other way round: check format"
    return words


def _is_ambiguous(texts: pd.Series, attribute: Date | Datetime, form: str) -> bool:
    """Whether all texts are read too with days and months exchanged."""
    for day, month in _EXCHANGED:
        if day in form and month in form and "%Y-%m-%d" not in form and _COMPACT not in form:
            exchanged = form.replace(day, "\0").replace(month, day).replace("\0", month)
            return not _misfits(texts, attribute, exchanged).any()
    return False


def _date_format(texts: pd.Series) -> str | None:
    """The format that all texts of a column of dates have; None if there is none."""
    midnights = [clock + zone for clock in _MIDNIGHTS for zone in ZONES]
    day = _first_fit(texts, ANY_DATE, DAYS, ["", *midnights])
    return day or _first_fit(texts, ANY_DATE, MONTHS, [""])


def _partial_format(texts: pd.Series) -> str | None:
    """The format of dates of which some lack the day, or the month; None if there is none."""
    first = str(texts.iloc[0])
    for form in (form for form in DAYS if form != _COMPACT):
        if re.search(written_moments.moment_pattern(form), first) or re.search(
            written_moments.partial_pattern(form), first
        ):
            odd = texts[_misfits(texts, ANY_DATE, form)]
            declared = ANY_DATE.model_copy(update={"format": form})
            if 0 < len(odd) < len(texts) and lacks_parts(odd, declared).all():
                return form
    return None


def _moment_format(texts: pd.Series) -> str | None:
    """The format that all texts of a column of moments have; None if there is none."""
    offset = _OFFSET.findall(str(texts.iloc[0]))
    zones = (*ZONES, *offset, "%:z", "%z", " %z")
    form = _first_fit(texts, ANY_MOMENT, DAYS, [clock + z for clock in CLOCKS for z in zones])
    return form and form.replace("%p", _half_of_day(texts))


def _first_fit(
    texts: pd.Series, attribute: Date | Datetime, days: Sequence[str], ends: Sequence[str]
) -> str | None:
    """The first format that all texts have: one of the days, and one of the ends after it."""
    distinct = pd.Series(texts.unique(), dtype="str")
    first = str(distinct.iloc[0])
    days = [day for day in days if re.match(written_moments.moment_pattern(day)[:-1], first)]
    forms = (day + end for day in days for end in ends)
    likely = (form for form in forms if re.search(written_moments.moment_pattern(form), first))
    return next((form for form in likely if not _misfits(distinct, attribute, form).any()), None)


def _misfits(texts: pd.Series, attribute: Date | Datetime, form: str) -> Booleans:
    """Which texts (n,) are not of a form."""
    form = written_moments.require_moment_format(form, isinstance(attribute, Datetime))
    return parse(texts, attribute.model_copy(update={"format": form}))[1]


def _half_of_day(texts: pd.Series) -> str:
    """The part of a form that writes AM and PM as texts of twelve-hour clocks have it."""
    return "%P" if texts.str.contains("[ap]m").all() else "%p"


CLOCK = r"[0-9]{1,6}:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
"""Times of day and lengths of time: 08:30, 27:15:30.5."""

CLOCK_OF_TWELVE = r"(?:0?[1-9]|1[0-2]):[0-5][0-9](?::[0-5][0-9])? ?(?:[AP]M|[ap]m)"
"""Times of day such as 8:30 AM."""

_MOST_DIGITS = 6
"""Digits of a second's fraction that are written; finer ones are rounded."""

_UNITS = {60: "minutes", 1: "seconds"}


def guess_clock(cells: ColumnCells) -> Guess | None:
    """Numbers of minutes or seconds, of texts that are all times such as 08:30 or 8:30 AM."""
    if not cells.is_text:
        return None
    form = _clock_format(cells.known.drop_duplicates())
    decimals = int(form[-2]) if form.endswith("f") else 0
    whole = Integer(type="integer", min=0, max=0, format=form) if not decimals else None
    typed = cells.typed(whole or Float(type="float", min=0, max=0, format=form))
    if typed is None:
        return None
    last, why = _clock_bounds(typed, written_moments.clock_unit(form))
    if decimals:
        most = last + 1 - 10.0**-decimals
        return Guess(
            {"type": "float", "min": 0.0, "max": most, "decimals": decimals, "format": form}, why
        )
    step = 60 if "%S" in form and (typed % 60 == 0).all() else 1
    steps = {"step": step} if step > 1 else {}
    keys = {"type": "integer", "min": 0, "max": last // step * step, **steps, "format": form}
    return Guess(keys, why)


def _clock_bounds(typed: pd.Series, unit: int) -> tuple[int, str]:
    """The greatest whole number of a day, or of greater ones rounded up; and why."""
    last, words = written_moments.SECONDS_OF_DAY // unit - 1, f"as numbers of {_UNITS[unit]}"
    if float(typed.max()) < last + 1:
        return last, f"times of day, {words}; bounds are those of a day"
    _, high, why = bounds_of("", 0, int(typed.max()) + 1, f"lengths of time, {words}")
    return int(high), why


def _clock_format(texts: pd.Series) -> str:
    """The form of texts of times: as fine as the finest of them."""
    short = "" if (texts.str.find(":") > 1).all() else "-"
    seconds = ":%S" if (texts.str.count(":") > 1).any() else ""
    if texts.str.fullmatch(CLOCK_OF_TWELVE).all():
        space = " " if texts.str.contains(" ", regex=False).any() else ""
        return f"%{short}I:%M{seconds}{space}{_half_of_day(texts)}"
    fractions = texts.str.extract(r"\.([0-9]+)$")[0].dropna()
    if fractions.str.contains("[1-9]").any():
        return f"%{short}H:%M:%S.%{min(int(fractions.str.len().max()), _MOST_DIGITS)}f"
    return f"%{short}H:%M{seconds}"


def in_native_times(keys: Keys, why: str, dtype: str) -> tuple[Keys, str]:
    """The guess of a column that a file stores as times, lengths of time or moments in a zone."""
    if keys["type"] == "datetime":
        why += "; in UTC here, released in the file's zone"
    elif keys["type"] not in ("integer", "float"):
        return keys, why
    elif "format" not in keys:
        why = f"a length of time in seconds; {why}"
    keys.pop("dtype", None)
    return {**keys, "dtype": dtype}, why
