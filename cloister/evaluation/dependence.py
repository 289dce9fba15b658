"""How strongly two columns of a table go together, on one scale for all types of columns.

A column is read in a few groups: a number in tenths of its rows, a list by its commonest values;
special and missing values stay apart. The strength is Cramér's V with the correction of Bergsma,
"A bias-correction for Cramér's V and Tschuprow's T" (2013), equations 6 to 8: 0 for independent
columns, whatever the number of groups and rows, and 1 where each column tells the other.

Privacy: as private as the rows: public of synthetic rows, internal of real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.schema.columns import Codes, Column, Grid
from cloister.schema.domain import Table

_GROUPS = 10
"""Groups of a column, special and missing values apart: of 2,000 rows each has hundreds."""

_MOST_NUMBERS = 20_000_000
"""Rows times groups of all columns that are counted, 80 MB: of more, evenly spaced rows are."""

_COUNTED = 16
"""Values of a column for each row at most that are counted; of more, rows are sorted."""

_MOST_RANKED = 2_000_000
"""Rows whose ranks are compared: of more, evenly spaced ones. The error is then at most 0.0007."""

_FEWEST_ROWS = 2_000
"""Rows that are taken in any case."""


def dependence(table: Table) -> Floats:
    """The strength (k, k), 0 to 1, with which the columns that are no keys go together in pairs.

    Of a long and wide table it is that of every second row, or fewer. The diagonal is 1.
    """
    names = table.domain.modelled
    strengths = np.eye(len(names))
    if len(names) < 2 or not table.rows:
        return strengths
    most = max(_FEWEST_ROWS, _MOST_NUMBERS // (len(names) * (_GROUPS + 2)))
    step = -(-table.rows // most)
    groups = [_groups(table.domain[name], table.codes[name][::step]) for name in names]
    sizes = np.array([column.max() + 1 for column in groups])
    begins = np.append(0, np.cumsum(sizes))
    members = np.zeros((begins[-1], len(groups[0])), dtype=np.float32)
    for column, begin in zip(groups, begins[:-1], strict=True):
        members[column + begin, np.arange(len(column))] = 1
    totals = members.sum(axis=1, dtype=np.float64)
    for first, begin in enumerate(begins[:-1]):
        group = slice(begin, begins[first + 1])
        counts = (members[group] @ members[begin:].T).astype(np.float64)
        squares = (np.square(counts) / totals[begin:] / totals[group, None]).sum(axis=0)
        shares = np.add.reduceat(squares, begins[first:-1] - begin) - 1
        strength = _cramers_v(shares, sizes[first], sizes[first:], members.shape[1])
        strengths[first, first:] = strengths[first:, first] = strength
    np.fill_diagonal(strengths, 1.0)
    return strengths


def _cramers_v(squares: Floats, size: int, sizes: Integers, rows: int) -> Floats:
    """The corrected V (k,) of a column of ``size`` groups with others, by chi-squared over rows."""
    if rows < 2:
        return np.zeros(len(sizes))
    excess = np.maximum(squares - (size - 1) * (sizes - 1) / (rows - 1), 0.0)
    corrected = [each - np.square(each - 1) / (rows - 1) - 1 for each in (size, sizes)]
    fewer = np.minimum(*corrected)
    return np.where(fewer > 0, np.sqrt(excess / np.where(fewer > 0, fewer, 1)), 0.0).clip(max=1)


def rank_correlations(table: Table, pairs: Sequence[tuple[str, str]]) -> tuple[float | None, ...]:
    """Spearman's rank correlation of pairs of columns, without special and missing values.

    Of a long table it is that of evenly spaced rows; each column is read once. None where one has
    no order, or one value.
    """
    if not pairs:  # a table of references alone has no columns
        return ()
    columns = {name: table.domain[name] for name in chain.from_iterable(pairs)}
    step = -(-table.rows // _MOST_RANKED) or 1
    ordered = {
        name: (column, table.stored[name][::step].copy())
        for name, column in columns.items()
        if column.kind in ("numeric", "ordered")
    }
    return tuple(
        _rank_correlation(ordered[first], ordered[second])
        if {first, second} <= ordered.keys()
        else None
        for first, second in pairs
    )


def _rank_correlation(*both: tuple[Column, Codes]) -> float | None:
    known = np.logical_and(*(ordinary(column, codes) for column, codes in both))
    if known.sum() < 2:
        return None
    ranks = [_ranks(column, codes[known]) for column, codes in both]
    for values in ranks:  # in place: of many rows each copy is large
        np.subtract(values, values.mean(), out=values)
    squares = [values @ values for values in ranks]
    return float(ranks[0] @ ranks[1] / np.sqrt(squares[0] * squares[1])) if all(squares) else None


def ordinary(column: Column, codes: Codes) -> Booleans:
    """Which codes (n,) are neither a special value nor missing."""
    special = column.special_codes if isinstance(column, Grid) else ()
    return ~np.isin(codes, [*special, *([] if column.null_code is None else [column.null_code])])


def _groups(column: Column, codes: Codes) -> Integers:
    """The groups (n,) of rows, numbered from 0."""
    values, numbers, counts = _occurring(column, codes)
    if len(values) <= _GROUPS:
        return numbers
    apart = ~ordinary(column, values)
    if column.kind == "nominal":
        single = np.isin(np.arange(len(values)), np.argsort(-counts, kind="stable")[: _GROUPS - 1])
        parts = np.where(single | apart, np.arange(len(values)) + 1, 0)
    else:
        rest = np.where(apart, 0, counts)
        tenths = (np.cumsum(rest) - rest / 2) * _GROUPS // max(rest.sum(), 1)
        parts = np.where(apart, _GROUPS + np.arange(len(values)), tenths)
    return np.unique(parts, return_inverse=True)[1][numbers]


def _ranks(column: Column, codes: Codes) -> Floats:
    """The mean ranks (n,) of codes (n,)."""
    _, numbers, counts = _occurring(column, codes)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[numbers], dtype=np.float64)


def _occurring(column: Column, codes: Codes) -> tuple[Integers, Integers, Integers]:
    """The codes that occur, the number (n,) of each row's among them, and the rows of each."""
    if column.size > _COUNTED * len(codes):
        values, numbers, counts = np.unique(codes, return_inverse=True, return_counts=True)
        return values, numbers, counts
    rows = np.bincount(codes, minlength=column.size)
    occur = rows > 0
    return np.flatnonzero(occur), (np.cumsum(occur) - 1)[codes], rows[occur]
