"""Tables as the text of a CSV file, in the formats that a spec declares for its source."""

from __future__ import annotations

import re
from itertools import chain
from typing import TextIO

import numpy as np
import pandas as pd
from pandas.api import types as pt

from cloister.arrays import Array
from cloister.schema.attributes import AnyAttribute, Date, Datetime, Float, Integer
from cloister.schema.sources.files.encodings import BYTE_ORDER_MARK, is_wide
from cloister.schema.spec import SourceSpec, Spec
from cloister.schema.values.clocks import time_type, write_clocks
from cloister.schema.values.formats import write_moments
from cloister.schema.values.number_formats import is_clock_format, write_numbers
from cloister.schema.values.parsing import parse

_DAY, _MOMENT = "%Y-%m-%d", "%Y-%m-%d %H:%M:%S"
"""Forms of dates and moments whose spec declares none."""


def write_csv_rows(frame: pd.DataFrame, file: TextIO, spec: Spec, header: bool) -> None:
    """Write the rows of a table of one spec, after its ``header`` if that is wanted.

    The header of UTF-16 follows its byte order mark. Reading the file with the spec gives the same
    table. Cells are in quotes where they hold the delimiter, a quote or a line's end; lines end in
    a line feed.
    """
    source = spec.source
    columns = [
        _quoted(_texts(frame[name], attribute, source), source.delimiter)
        for name, attribute in spec.attributes.items()
    ]
    names = _quoted(np.array(list(spec.attributes), dtype=object), source.delimiter)
    rows = chain([tuple(names)] if header else [], zip(*columns, strict=True))
    if header and is_wide(source.encoding):
        file.write(BYTE_ORDER_MARK)
    # an empty line is no row
    file.writelines((source.delimiter.join(row) or '""') + "\n" for row in rows)


def _quoted(texts: Array, delimiter: str) -> Array:
    """Texts (n,), those with a special letter in quotes."""
    special = re.compile(f'[{re.escape(delimiter)}"\r\n]')
    if special.search("".join(texts)) is None:
        return texts
    quoted = texts.copy()
    for at, text in enumerate(texts):
        if special.search(text):
            quoted[at] = '"' + text.replace('"', '""') + '"'
    return quoted


def _texts(values: pd.Series, attribute: AnyAttribute, source: SourceSpec) -> Array:
    """A column as text (n,)."""
    known = values.notna().to_numpy(dtype=bool)
    own, usual = attribute.missing, (*source.missing, "")[0]
    texts = np.full(len(values), usual if own is None else own, dtype=object)
    if known.any():
        texts[known] = _written(values[known], attribute, source)
    return texts


def _written(values: pd.Series, attribute: AnyAttribute, source: SourceSpec) -> Array:
    form: str | None = getattr(attribute, "format", None)
    if time_type(str(values.dtype)) is not None:
        values = parse(values, attribute)[0]
    if pt.is_datetime64_dtype(values.dtype):
        return write_moments(values.to_numpy(), form or _usual_form(attribute))
    if pt.is_bool_dtype(values.dtype) or not pt.is_numeric_dtype(values.dtype):
        return values.astype("str").to_numpy(dtype=object)
    whole = pt.is_integer_dtype(values.dtype)
    numbers = values.to_numpy(dtype="int64" if whole else _width(values))
    own = form if isinstance(attribute, Integer | Float) else None
    if own is not None and is_clock_format(own):
        return write_clocks(numbers, own)
    return write_numbers(numbers, own, source.decimal, source.thousands)


def _usual_form(attribute: AnyAttribute) -> str:
    """How a date or moment is written whose spec declares no form."""
    if isinstance(attribute, Date):
        return _DAY
    places = attribute.places if isinstance(attribute, Datetime) else 0
    return f"{_MOMENT}.%{places}f" if places else _MOMENT


def _width(values: pd.Series) -> str:
    return "float32" if str(values.dtype).lower() == "float32" else "float64"
