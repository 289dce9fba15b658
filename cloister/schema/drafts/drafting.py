"""A first spec for a file, guessed from its values: every guess is marked as one.

Privacy: a draft holds values of the data, and one row may decide any guess. It is as private as the
data, until a person has replaced each guess by what is publicly known. Each attribute is marked
``data-derived``; ``unconfirmed`` names what even a measurement takes as declared: names, delimiter,
texts for missing values, types.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from cloister.errors import DataError
from cloister.schema.attributes import (
    DATA_DERIVED,
    AnyAttribute,
    Boolean,
    Date,
    Datetime,
    Float,
    Integer,
)
from cloister.schema.parsing import parse
from cloister.schema.sources.reading import (
    DELIMITERS,
    csv_header,
    guard_reading,
    parquet_names,
    read_native,
    read_text,
    require_columns,
    table_format,
)
from cloister.schema.spec import DraftedFact, SourceSpec
from cloister.schema.spec_files.writing import entries, flow, scalar

Guess = dict[str, Any]

_MISSING_TOKENS = ("NA", "N/A", "NULL", "NaN", "?")
_BOOLEAN_WORDS = (
    ("True", "False"),
    ("true", "false"),
    ("TRUE", "FALSE"),
    ("yes", "no"),
    ("Yes", "No"),
    ("Y", "N"),
)
_FEWEST_KEYS = 20
"""Known values of a column at least, for it to be guessed a text key."""

_POINT_MASS = 0.1
"""The share of zeros above which zero is guessed a special value."""

_MOST_DECIMALS = 6
"""Decimal places that a guessed grid has at most."""

_BINS = 50
"""Bins of a guessed number; whole numbers get them where the range is wider than twice as many."""

_MOST_ODD = 0.02
"""The share of values that a remark takes for slips; with more, the column is of its own type."""

_NATIVE_FACTS: tuple[DraftedFact, ...] = ("names", "types")
_TEXT_FACTS: tuple[DraftedFact, ...] = ("names", "delimiter", "missing", "types")

_ANY_DATE = Date(type="date", min=dt.date.min, max=dt.date.max)
_ANY_MOMENT = Datetime(type="datetime", min=dt.datetime.min, max=dt.datetime.max)  # noqa: DTZ901
_NARROW: tuple[tuple[str, AnyAttribute], ...] = (
    ("whole numbers", Integer(type="integer", min=0, max=0)),
    ("numbers", Float(type="float", min=0, max=0)),
    ("dates", _ANY_DATE),
    ("moments", _ANY_MOMENT),
)
_CODE = r"^\s*[+-]?0[0-9]"
_NUMBERED = re.compile(r"([^{}]*?)(\d+)")

_HEAD = """\
# Drafted from {source}; it holds values of the data, so keep it as private as the data. A single
# row may have decided any of it, so a release refuses it until a person has declared it from what
# is known without looking at the data (a code book, a law, a form):
# - unconfirmed: read through what it names, correct it, then delete the word, or the whole line to
#   confirm all.
# - data-derived: correct the line, bounds and values first, and write in place of data-derived
#   where they are known from. What is not known stays data-derived and is measured with noise, at a
#   charge: cloister spec measure.
name: {name}
source: {{{source_keys}}}
unconfirmed: {unconfirmed} # delete once read through
privacy:
  unit: row # or {{key: COLUMN, max_rows: NUMBER}} when one person may own several rows
  relation: add_remove
  rows: {{measured: true}} # or {{public: NUMBER}} when the number of rows is no secret
  budget: {{epsilon: 10, delta: 1e-6, per: year}}
attributes:
"""

_FOOT = """\
constraints: [] # such as {fd: zip -> city} or {deny: "t1.start > t1.end"}
release: {method: auto, epsilon: 1, delta: 1e-7}
"""


def draft(path: Path) -> str:
    """The YAML text of a drafted spec for a CSV or Parquet file; ``load_spec`` reads it.

    Raises:
        StorageError: the file cannot be read.
        DataError: no header, no rows, doubled columns, not UTF-8.
    """
    source, frame = _table(path)
    if frame.empty:
        raise DataError(f"{path} has no rows; give a table with rows")
    lines = [_line(name, guess(frame[name]), remark(frame[name])) for name in frame.columns]
    name = re.sub(r"[^A-Za-z0-9._-]", "-", path.name.partition(".")[0]).lstrip("._-") or "dataset"
    unconfirmed = flow(_TEXT_FACTS if table_format(path) == "csv" else _NATIVE_FACTS)
    head = _HEAD.format(
        source=json.dumps(path.name),
        name=name,
        source_keys=entries(source),
        unconfirmed=unconfirmed,
    )
    return head + "".join(lines) + _FOOT


def guess(values: pd.Series) -> Guess:
    """The keys of an attribute that all values fit: type, outward bounds, nullable, provenance."""
    known = values.dropna()
    kind = next(
        (found for candidate in _CANDIDATES if (found := candidate(known))), None
    ) or _listed(known)
    nullable = {"nullable": True} if len(known) < len(values) else {}
    return {**kind, **nullable, **_dtype(values), "provenance": DATA_DERIVED}


def remark(values: pd.Series) -> str:
    """A hint where a few odd cells decided the guess, else the empty text.

    The hint says that nearly all of the values are of a narrower type.
    """
    known = values.dropna()
    if not isinstance(known.dtype, pd.StringDtype) or known.str.match(_CODE).mean() > _MOST_ODD:
        return ""
    narrow = next(
        (found for found in _misfits(known) if found[1] <= _MOST_ODD * len(known)), ("", 0)
    )
    return f"all but {narrow[1]} of {len(known)} values are {narrow[0]}" if narrow[1] else ""


def _misfits(known: pd.Series) -> Iterator[tuple[str, int]]:
    """Narrow types, the narrowest first, and how many of the values are of another."""
    for pair in _BOOLEAN_WORDS:
        yield " or ".join(pair), int((~known.isin(pair)).sum())
    for words, attribute in _NARROW:
        yield words, int(parse(known, attribute)[1].sum())


def _table(path: Path) -> tuple[Guess, pd.DataFrame]:
    read = _text_table if table_format(path) == "csv" else _native_table
    source: Guess = {"path": str(path)}
    return source, guard_reading(path, lambda: read(path, source))


def _native_table(path: Path, source: Guess) -> pd.DataFrame:
    del source
    names = parquet_names(path)
    require_columns(names, names, str(path))
    return read_native(path, names)


def _text_table(path: Path, source: Guess) -> pd.DataFrame:
    delimiter = max(DELIMITERS, key=lambda mark: len(csv_header(path, mark)))
    names = csv_header(path, delimiter)
    require_columns(names, list(dict.fromkeys(names)), str(path))
    frame = read_text(path, SourceSpec(path=str(path), delimiter=delimiter, missing=()), names)
    tokens = [
        token for token in _MISSING_TOKENS if any((frame[name] == token).any() for name in names)
    ]
    source.update({"delimiter": delimiter, "missing": ["", *tokens]})
    return frame.mask(frame.isin(["", *tokens]))


def _fits(known: pd.Series, attribute: AnyAttribute) -> pd.Series | None:
    """The typed values if all are of the attribute's type and there are any."""
    typed, invalid = parse(known, attribute)
    return None if invalid.any() or known.empty else typed


def _boolean(known: pd.Series) -> Guess | None:
    if pt.is_bool_dtype(known.dtype):
        return {"type": "boolean"}
    for true, false in _BOOLEAN_WORDS if pt.is_string_dtype(known.dtype) else ():
        if (
            _fits(known, Boolean(type="boolean", true=true, false=false)) is not None
            and known.nunique() == 2
        ):
            return (
                {"type": "boolean"}
                if true == "True"
                else {"type": "boolean", "true": true, "false": false}
            )
    return None


def _integer(known: pd.Series) -> Guess | None:
    typed = _fits(known, Integer(type="integer", min=0, max=0))
    if typed is None or pt.is_float_dtype(known.dtype) or _is_code(known):
        return None
    low, high = _outwards(int(typed.min()), int(typed.max()))
    wide = {"bins": _BINS} if high - low > 2 * _BINS else {}
    return {"type": "integer", "min": int(low), "max": int(high), **wide, **_point_mass(typed, 0)}


def _float(known: pd.Series) -> Guess | None:
    typed = _fits(known, Float(type="float", min=0, max=0))
    if typed is None or _is_code(known):
        return None
    low, high = _outwards(float(typed.min()), float(typed.max()))
    grid = {"decimals": _decimals(typed), "bins": _BINS}
    return {
        "type": "float",
        "min": float(low),
        "max": float(high),
        **grid,
        **_point_mass(typed, 0.0),
    }


def _date(known: pd.Series) -> Guess | None:
    typed = _fits(known, _ANY_DATE)
    if typed is None:
        return None
    return {
        "type": "date",
        "min": f"{typed.min().year:04d}-01-01",
        "max": f"{typed.max().year:04d}-12-31",
    }


def _datetime(known: pd.Series) -> Guess | None:
    typed = _fits(known, _ANY_MOMENT)
    if typed is None:
        return None
    step = (
        {"step": 60} if (typed.dt.second == 0).all() and (typed.dt.microsecond == 0).all() else {}
    )
    first, last = f"{typed.min().year:04d}-01-01T00:00:00", f"{typed.max().year:04d}-12-31T23:59:59"
    return {"type": "datetime", "min": first, "max": last, **step}


def _key(known: pd.Series) -> Guess | None:
    """A text key: many texts that are one prefix and a number, each different."""
    if not pt.is_string_dtype(known.dtype) or len(known) < _FEWEST_KEYS or known.duplicated().any():
        return None
    parts = known.str.extract(f"^{_NUMBERED.pattern}$")
    if parts[0].nunique() == 1 and parts[1].notna().all():
        width = int(parts[1].str.len().max())
        start = "0" * width if parts[1].str.len().nunique() == 1 else "0"
        return {"type": "text", "pattern": f"{parts[0].iloc[0]}{{{start}..{'9' * width}}}"}
    return {"type": "text", "pattern": f"KEY{{{'0' * 8}1..{'9' * 9}}}"}


def _listed(known: pd.Series) -> Guess:
    texts = sorted(known.astype("str").unique()) or ["none"]
    return {"type": "categorical", "values": texts}


_CANDIDATES = (_boolean, _integer, _float, _date, _datetime, _key)


def _is_code(known: pd.Series) -> bool:
    """Whether text looks like a code, not a number: leading zeros would be lost."""
    return bool(pt.is_string_dtype(known.dtype) and known.str.match(_CODE).any())


def _outwards(low: float, high: float) -> tuple[float, float]:
    """Bounds moved outwards to multiples of a power of ten, the one of their distance."""
    step = 10.0 ** np.floor(
        np.log10(max(high - low, abs(high), 1e-12) if high == low else high - low)
    )
    return float(np.floor(low / step) * step), float(np.ceil(high / step) * step)


def _decimals(typed: pd.Series) -> int:
    numbers = typed.to_numpy(dtype=np.float64)
    return next(
        (
            places
            for places in range(_MOST_DECIMALS)
            if np.array_equal(np.round(numbers, places), numbers)
        ),
        _MOST_DECIMALS,
    )


def _point_mass(typed: pd.Series, value: float) -> Guess:
    return {"special": [value]} if float(typed.eq(value).mean()) > _POINT_MASS else {}


def _dtype(values: pd.Series) -> Guess:
    """The pandas dtype where it is not the usual one of its type, so that a release has it too."""
    name = str(values.dtype)
    unusual = re.fullmatch(r"U?Int(8|16|32)|UInt64|float32|datetime64\[(ms|us|ns)\]|category", name)
    if unusual is None:
        return {}
    return {
        "dtype": name if values.isna().any() or not name.startswith(("I", "U")) else name.lower()
    }


def _line(name: str, keys: Guess, remark: str) -> str:
    return f"  {scalar(name)}: {{{entries(keys)}}}" + (f" # {remark}" if remark else "") + "\n"
