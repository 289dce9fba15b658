"""Columns of a pandera schema as Python source: dtype, values, patterns, bounds, grids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from cloister.schema import attributes
from cloister.schema.codelists import NUMBERED_PATTERN
from cloister.schema.columns import Column, Grid, Listed
from cloister.schema.series import time_type
from cloister.schema.ticks import float_decimals, is_month, ticks_per_unit
from cloister.schema.written_moments import clock_unit

WIDTH = 100
"""Letters of a line at most."""

LONG_LIST = 1_000
"""Values of a list that YAML holds at most: of 100,000 it takes seconds to write and to read."""

DAY, SECOND = 86_400_000_000, 1_000_000
"""Microseconds of a day and of a second."""

_YAML_YEARS = range(1000, 10_000)
"""Years that pandera writes with four digits, and reads back."""


def column_source(column: Column, dtype: Any, unique: bool) -> str:
    """The source of a column, which pandas reads with a dtype."""
    checks = [*([f"stored({str(dtype)!r})"] if _is_arrow(dtype) else []), *_checks(column, dtype)]
    parts = [_dtype_source(column, dtype)]
    if checks:
        parts.append(checks[0] if len(checks) == 1 else laid_out("[", checks, "]"))
    parts += [
        f"{name}=True"
        for name, wanted in (("nullable", column.attribute.nullable), ("unique", unique))
        if wanted
    ]
    return laid_out("pa.Column(", parts, ")")


def is_native(column: Grid, dtype: Any) -> bool:
    """Whether numbers are stored as numbers, and dates and moments as times."""
    return dtype.kind in (
        "M" if isinstance(column.attribute, attributes.Date | attributes.Datetime) else "iuf"
    )


def listed_values(column: Listed) -> list[Any]:
    """The values of a column as they are stored, in their order."""
    return column.decode(np.arange(column.values)).tolist()


def laid_out(start: str, parts: Sequence[str], end: str) -> str:
    """Parts between brackets on one line, or each on its own where they are long."""
    line = f"{start}{', '.join(parts)}{end}"
    if len(line) <= WIDTH - 20 and "\n" not in line:
        return line
    return "\n".join([start, *(f"    {indented(part)}," for part in parts), end])


def indented(source: str) -> str:
    """Source of several lines as a part of an indented one."""
    return source.replace("\n", "\n    ")


def list_source(values: Sequence[Any]) -> str:
    """The source of a list, as many values on a line as fit."""
    lines = [""]
    for value in map(repr, values):
        if len(lines[-1]) + len(value) > WIDTH - 25:
            lines.append("")
        lines[-1] += f"{value}, "
    if len(lines) == 1:
        return f"[{lines[0].removesuffix(', ')}]"
    return "\n".join(["[", *(f"    {line.rstrip()}" for line in lines), "]"])


def _is_arrow(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype)


def _dtype_source(column: Column, dtype: Any) -> str:
    if _is_arrow(dtype):
        return "None"
    if isinstance(dtype, pd.CategoricalDtype) and isinstance(column, Listed):
        values = list_source(listed_values(column))
        return laid_out("pd.CategoricalDtype(", [values, f"ordered={dtype.ordered}"], ")")
    return repr(str(dtype))


def _checks(column: Column, dtype: Any) -> list[str]:
    """The checks of a column's values; none of numbers and times that are stored as text."""
    attribute = column.attribute
    if isinstance(column, Grid):
        return _grid_checks(column, dtype)
    if isinstance(attribute, attributes.TextKey):
        return _numbered(attribute.pattern, dtype)
    assert isinstance(column, Listed)
    if isinstance(attribute, attributes.Categorical | attributes.Ordinal) and isinstance(
        attribute.values, attributes.ValuesPattern
    ):
        return _numbered(attribute.values.pattern, dtype)
    if dtype.kind == "b":
        return []
    check = "listed" if column.values > LONG_LIST else "pa.Check.isin"
    return [laid_out(f"{check}(", [list_source(listed_values(column))], ")")]


def _numbered(pattern: str, dtype: Any) -> list[str]:
    """The checks of texts of a numbered pattern, or of the numbers that they are stored as."""
    match = NUMBERED_PATTERN.fullmatch(pattern)
    assert match is not None
    first, last, width = int(match["first"]), int(match["last"]), len(match["first"])
    if dtype.kind in "iuf":
        return [f"pa.Check.in_range({first}, {last})"]
    digits = "(?:0|[1-9][0-9]*)"
    if match["first"].startswith("0"):
        digits = f"(?:[0-9]{{{width}}}|[1-9][0-9]{{{width},}})"
    whole = f"^{re.escape(match['prefix'])}{digits}{re.escape(match['suffix'])}$"
    return [
        f"pa.Check.str_matches({whole!r})",
        f"numbered({match['prefix']!r}, {first}, {last}, {match['suffix']!r})",
    ]


def _grid_checks(column: Grid, dtype: Any) -> list[str]:
    """The bounds that YAML holds, and the grid where they do not say it all."""
    attribute = column.attribute
    if is_of_times(dtype):
        return _grid(column, Fraction(clock_unit(_format(column)) * SECOND) / _per_unit(column))
    if not is_native(column, dtype):
        return []
    bounds = _bounds(column, dtype)
    if is_month(attribute):
        beyond = f", {list(column.beyond)}" if column.beyond else ""
        return [*bounds, f"months({column.origin}, {column.steps}{beyond})"]
    if isinstance(attribute, attributes.Date):
        return [*bounds, *_grid(column, Fraction(DAY))]
    if isinstance(attribute, attributes.Datetime):
        return [*bounds, *_grid(column, Fraction(attribute.tick_micros))]
    if isinstance(attribute, attributes.Integer) and column.stride == 1 and not column.beyond:
        return bounds if dtype.kind in "iu" else [*bounds, *_grid(column, Fraction(1))]
    decimals = float_decimals(attribute) if isinstance(attribute, attributes.Float) else 0
    return [*bounds, *_grid(column, Fraction(1), decimals)]


def _grid(column: Grid, units: Fraction, decimals: int = 0) -> list[str]:
    """The check of a grid whose ticks are so many units; none if these are no whole ones."""
    first, stride = column.origin * units, column.stride * units
    beyond = [tick * units for tick in column.beyond]
    if any(number.denominator != 1 for number in (first, stride, *beyond)):
        return []
    parts = [str(first), str(stride), str(column.steps)]
    parts += [f"special=[{', '.join(map(str, beyond))}]"] if beyond else []
    return [laid_out("grid(", [*parts, *([f"decimals={decimals}"] if decimals else [])], ")")]


def _bounds(column: Grid, dtype: Any) -> list[str]:
    """The least and the greatest value, special ones included; none that YAML cannot hold."""
    beyond = range(column.steps, column.values)
    stored = column.decode(np.array([0, column.steps - 1, *beyond])).tolist()
    ends = min(stored), max(stored)
    if dtype.kind != "M":
        return [f"pa.Check.in_range({ends[0]!r}, {ends[1]!r})"]
    if _is_arrow(dtype) or any(
        end.tz or end.microsecond or end.year not in _YAML_YEARS for end in ends
    ):
        return []
    low, high = (f"pd.Timestamp({str(end)!r})" for end in ends)
    return [f"pa.Check.in_range({low}, {high})"]


def is_of_times(dtype: Any) -> bool:
    """Whether times of day or lengths of time are stored as such."""
    return time_type(str(dtype)) is not None


def _per_unit(column: Grid) -> int:
    return round(ticks_per_unit(column.attribute))


def _format(column: Grid) -> str | None:
    return getattr(column.attribute, "format", None)
