"""Columns of times of day and of lengths of time, guessed as numbers that are written as clocks.

Privacy: one row may decide any of it.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from cloister.schema.attributes import Float, Integer
from cloister.schema.drafts.column_cells import ColumnCells, Guess, Keys
from cloister.schema.drafts.number_bounds import bounds_of
from cloister.schema.drafts.written_forms import half_of_day
from cloister.schema.values.formats import SECONDS_OF_DAY
from cloister.schema.values.number_formats import clock_unit

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
