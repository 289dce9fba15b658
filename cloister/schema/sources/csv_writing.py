"""Tables as text of CSV files, in the formats that a spec declares for its source."""

from __future__ import annotations

import re
from itertools import chain
from typing import TextIO

import numpy as np
import pandas as pd
from pandas.api import types as pt

from cloister.arrays import Array
from cloister.schema.attributes import AnyAttribute, Date, Datetime, Float, Integer
from cloister.schema.parsing import parse
from cloister.schema.series import time_type
from cloister.schema.sources import files_and_urls
from cloister.schema.spec import SourceSpec, Spec
from cloister.schema.written_moments import is_clock_format, write_clocks, write_moments
from cloister.schema.written_numbers import write_numbers

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
    named = header and source.header is None
    rows = chain([tuple(names)] if named else [], zip(*columns, strict=True))
    if header and files_and_urls.is_wide(source.encoding):
        file.write(files_and_urls.BYTE_ORDER_MARK)
    # an empty line is no row
    file.writelines((source.delimiter.join(row) or '""') + "\n" for row in rows)


def _quoted(texts: Array, delimiter: str) -> Array:
    """Texts (n,), those with a special letter in quotes."""
    special = re.compile(f'[{re.escape(delimiter)}"\r\n]')
    if special.search("".join(texts)) is None:
        return texts
    quoted = texts.copy()
    for row, text in enumerate(texts):
        if special.search(text):
            quoted[row] = '"' + text.replace('"', '""') + '"'
    return quoted


def _texts(values: pd.Series, attribute: AnyAttribute, source: SourceSpec) -> Array:
    """A column as text (n,)."""
    known = values.notna().to_numpy(dtype=bool)
    usual = (*source.missing, "")[0]
    missing = usual if attribute.missing is None else attribute.missing
    texts = np.full(len(values), missing, dtype=object)
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
    number_form = form if isinstance(attribute, Integer | Float) else None
    if number_form is not None and is_clock_format(number_form):
        return write_clocks(numbers, number_form)
    return write_numbers(numbers, number_form, source.decimal, source.thousands)


def _usual_form(attribute: AnyAttribute) -> str:
    """How a date or moment is written whose spec declares no form."""
    if isinstance(attribute, Date):
        return _DAY
    decimals = attribute.places if isinstance(attribute, Datetime) else 0
    return f"{_MOMENT}.%{decimals}f" if decimals else _MOMENT


def _width(values: pd.Series) -> str:
    return "float32" if str(values.dtype).lower() == "float32" else "float64"
