"""Checks of synthetic tables with pandas and pandera alone: the source of each ``schema.py``.

:mod:`cloister.constraints.schema_file` copies all that follows this docstring into the file, so
nothing here may import Cloister. No comparison holds on a missing value, as in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pandera.pandas as pa

Cells = Callable[[pd.DataFrame], pd.Series]
"""A value for each row of a table: its cells of one column, or whether a condition holds."""


def grid(
    first: int, stride: int, steps: int, special: Sequence[int] = (), decimals: int = 0
) -> pa.Check:
    """Values are among ``steps`` numbers from ``first`` on, ``stride`` apart, or special.

    All in units of the last of some decimal places; of times, in microseconds (since 1970, UTC).
    """

    def holds(values: pd.Series) -> pd.Series:
        units = _units(values, decimals)
        inside = (units >= first) & (units <= first + (steps - 1) * stride)
        inside &= (units - first) % stride == 0
        return (inside | units.isin(special)) & _are_rounded(values, decimals)

    return pa.Check(holds, name="grid", error="is a declared value")


def months(first: int, steps: int, special: Sequence[int] = ()) -> pa.Check:
    """Days are the first of ``steps`` months, counted from January 1970, or of special ones."""

    def holds(values: pd.Series) -> pd.Series:
        number = (values.dt.year - 1970) * 12 + values.dt.month - 1
        inside = (number >= first) & (number < first + steps)
        return (inside | number.isin(special)) & (values.dt.day == 1)

    return pa.Check(holds, name="months", error="is a declared month")


def numbered(prefix: str, first: int, last: int, suffix: str) -> pa.Check:
    """Texts hold a number from ``first`` to ``last`` between prefix and suffix."""

    def holds(values: pd.Series) -> pd.Series:
        digits = values.astype("str").str.slice(len(prefix), -len(suffix) or None)
        return pd.to_numeric(digits, errors="coerce").between(first, last)

    return pa.Check(holds, name="numbered", error=f"has a number from {first} to {last}")


def listed(values: Sequence[Any]) -> pa.Check:
    """Values are in a long list."""
    return pa.Check(lambda column: column.isin(values), name="listed", error="is a listed value")


def stored(dtype: str) -> pa.Check:
    """The column has a dtype that pandera has no name for."""
    return pa.Check(lambda column: str(column.dtype) == dtype, name="dtype", error=f"is {dtype}")


def forbid(name: str, text: str, condition: Cells) -> pa.Check:
    """The condition, which ``text`` says in words, holds for no row."""
    return pa.Check(lambda table: ~condition(table), name=name, error=text, ignore_na=False)


def dependency(name: str, text: str, left: list[str], right: str) -> pa.Check:
    """Rows that agree on ``left`` agree on ``right``."""

    def holds(table: pd.DataFrame) -> pd.Series:
        pairs = table[[*left, right]].dropna().drop_duplicates()
        differ = pairs.duplicated(left, keep=False) if left else [len(pairs) > 1] * len(pairs)
        return ~table.index.to_series().isin(pairs.index[differ])

    return pa.Check(holds, name=name, error=text, ignore_na=False)


def unique(name: str, text: str, columns: list[str]) -> pa.Check:
    """No two rows agree on all columns."""

    def holds(table: pd.DataFrame) -> pd.Series:
        known = table[columns].dropna()
        return ~table.index.to_series().isin(known.index[known.duplicated(keep=False)])

    return pa.Check(holds, name=name, error=text, ignore_na=False)


def in_order(
    name: str, text: str, equal: list[str], low: tuple[Cells, str], high: tuple[Cells, str]
) -> pa.Check:
    """No two rows t1, t2 that agree on ``equal`` compare so by ``low`` and by ``high``.

    Each is a column and the comparison of t1 with t2; that of ``low`` is > or >=.
    """

    def holds(table: pd.DataFrame) -> pd.Series:
        cells = pd.DataFrame({"low": low[0](table), "high": high[0](table)})
        known = cells.notna().all(axis=1) & table[equal].notna().all(axis=1)
        rows = pd.DataFrame({name: _ordinals(cells[name][known]) for name in cells})
        if high[1].startswith(">"):
            rows["high"] = -rows["high"]  # t2 is then higher than t1
        groups = table[known].groupby(equal, observed=True).ngroup() if equal else 0
        rows = rows.assign(group=groups).sort_values(
            ["group", "low", "high"], ascending=[True, True, False]
        )
        if low[1] == ">":  # the highest of the group among rows that are lower
            highest = rows.groupby(["group", "low"])["high"].max()
            before = highest.groupby("group").cummax().groupby("group").shift().rename("before")
            before = rows.join(before, on=["group", "low"])["before"]
        else:  # among rows that are lower or equal
            highest = rows.groupby("group")["high"].cummax()
            before = highest.groupby(rows["group"]).shift()
        bad = before >= rows["high"] if high[1].endswith("=") else before > rows["high"]
        return ~table.index.to_series().isin(rows.index[bad])

    return pa.Check(holds, name=name, error=text, ignore_na=False)


def compare(left: pd.Series, op: str, right: Any) -> pd.Series:
    """Where ``left op right`` holds, a column against a column or a constant."""
    known, number = left.notna(), comparable(left)
    if isinstance(right, pd.Series):
        known, right = known & right.notna(), comparable(right)
    operators = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    truth = pd.Series(False, index=left.index)
    if known.any():
        operand = right[known] if isinstance(right, pd.Series) else right
        truth[known] = getattr(number[known], operators[op])(operand).astype("bool")
    return truth


def plus(values: pd.Series, amount: int, decimals: int) -> pd.Series:
    """Numbers and an amount in units of the last of some decimal places."""
    return ((comparable(values) * 10**decimals).round() + amount) / 10**decimals


def later(values: pd.Series, months: int, days: int, *, whole_days: bool) -> pd.Series:
    """Times so many months and days later, first without their time of day for ``whole_days``.

    Months are those of the calendar: 29 February and 12 months are 28 February.
    """
    times = _utc(values).dt.floor("D") if whole_days else _utc(values)
    return times + pd.DateOffset(months=months, days=days)


def rank(values: pd.Series, order: Sequence[Any]) -> pd.Series:
    """The positions of values in a list."""
    return values.astype("object").map({value: position for position, value in enumerate(order)})


def comparable(values: pd.Series) -> pd.Series:
    """Numbers as floats, times in UTC, others as they are."""
    kind = values.dtype.kind
    if kind == "M":
        return _utc(values)
    if kind in "iuf":
        return pd.Series(values.to_numpy("float64", na_value=float("nan")), index=values.index)
    return values.astype("object")


def read_tables(path: str | Path, names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The tables in a folder of Parquet files, or in the file of the only one, by name."""
    location = Path(path)
    return {
        name: pd.read_parquet(location / f"{name}.parquet" if location.is_dir() else location)
        for name in names
    }


def check_reference(
    tables: Mapping[str, pd.DataFrame], child: str, column: str, parent: str, key: str
) -> None:
    """Check that each reference is missing or names a row of the parent."""
    keys, text = tables[parent][key], f"names a row of {parent}"
    named = pa.Check(lambda values: values.isin(keys), name="reference", error=text)
    rule = pa.DataFrameSchema({column: pa.Column(checks=named, nullable=True)}, name=child)
    rule.validate(tables[child], lazy=True, inplace=True)


def check_across(
    tables: Mapping[str, pd.DataFrame],
    reference: tuple[str, str, str, str],
    name: str,
    text: str,
    condition: Callable[[pd.DataFrame, pd.DataFrame], pd.Series],
) -> None:
    """Check that a condition holds for no row and the one that its reference names."""
    child, column, parent, key = reference
    rows = tables[child][tables[child][column].notna()]
    parents = tables[parent].set_index(key, drop=False).reindex(rows[column]).set_index(rows.index)
    check = forbid(name, text, lambda frame: condition(frame, parents))
    pa.DataFrameSchema(checks=check, name=child).validate(rows, lazy=True, inplace=True)


def _ordinals(values: pd.Series) -> pd.Series:
    """Numbers in the order of values, none of them missing."""
    numbers = comparable(values)
    return numbers.astype("int64") if numbers.dtype.kind == "M" else pd.to_numeric(numbers)


def _units(values: pd.Series, decimals: int) -> pd.Series:
    """Values in units of the last of some decimal places; times in microseconds."""
    kind = values.dtype.kind
    if kind == "M":
        return _utc(values).astype("int64")
    if kind == "m":
        return values.astype("timedelta64[us]").astype("int64")
    if kind in "iu":
        return values.astype("int64")
    if kind == "f":
        units = values.astype("float64") * 10**decimals
        return units.round().clip(-(2.0**62), 2.0**62).astype("int64")
    return pd.to_timedelta(values.astype("str")).astype("timedelta64[us]").astype("int64")


def _are_rounded(values: pd.Series, decimals: int) -> pd.Series:
    """Where values have no more decimal places; all that are no floats."""
    if values.dtype.kind != "f":
        return pd.Series(data=True, index=values.index)
    return values.astype("float64").round(decimals).astype(values.dtype) == values


def _utc(values: pd.Series) -> pd.Series:
    """Times in UTC, in microseconds."""
    moments = pd.to_datetime(values)
    if moments.dt.tz is not None:
        moments = moments.dt.tz_convert("UTC").dt.tz_localize(None)
    return moments.astype("datetime64[us]")
