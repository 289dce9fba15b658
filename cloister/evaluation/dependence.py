"""How strongly two columns of a table go together, on one scale for all types of columns.

A column is read in a few groups: a number in tenths of its rows, a list by its commonest values;
special and missing values stay apart. The strength is Cramér's V with the correction of Bergsma,
"A bias-correction for Cramér's V and Tschuprow's T" (2013), equations 6 to 8: 0 for independent
columns, whatever the number of groups and rows, and 1 where each column tells the other.

Privacy: as private as the rows: public of synthetic rows, internal of real ones.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.schema.columns import Codes, Column, Grid
from cloister.schema.domain import Table

_GROUPS = 10
"""Groups of a column, special and missing values apart: of 2,000 rows each has hundreds."""

_MOST_WORK = 400_000_000
"""Rows times pairs that are counted: a few seconds. Of more, evenly spaced rows are taken."""

_FEWEST_ROWS = 2_000
"""Rows that are taken in any case."""


def dependence(table: Table) -> Floats:
    """The strength (k, k), 0 to 1, with which the columns that are no keys go together in pairs.

    Of a long and wide table it is that of every second row, or fewer. The diagonal is 1.
    """
    names = table.domain.modelled
    strengths = np.eye(len(names))
    if len(names) < 2:
        return strengths
    pairs = len(names) * (len(names) - 1) // 2
    step = max(1, table.rows // max(_FEWEST_ROWS, _MOST_WORK // pairs))
    groups = [_groups(table.domain[name], table.codes[name][::step]) for name in names]
    for first, second in combinations(range(len(names)), 2):
        strength = _cramers_v(groups[first], groups[second])
        strengths[first, second] = strengths[second, first] = strength
    return strengths


def rank_correlation(table: Table, first: str, second: str) -> float | None:
    """Spearman's rank correlation of two columns, without special and missing values.

    None where one has no order, or a single value.
    """
    columns = [table.domain[name] for name in (first, second)]
    if not all(column.kind in ("numeric", "ordered") for column in columns):
        return None
    codes = [table.codes[name] for name in (first, second)]
    both = np.logical_and(*map(ordinary, columns, codes))
    ranks = [_ranks(values[both]) for values in codes]
    if any(len(values) < 2 or values.std() == 0 for values in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def ordinary(column: Column, codes: Codes) -> Booleans:
    """Which codes (n,) are neither a special value nor missing."""
    special = column.special_codes if isinstance(column, Grid) else ()
    return ~np.isin(codes, [*special, *([] if column.null_code is None else [column.null_code])])


def _groups(column: Column, codes: Codes) -> Integers:
    """The groups (n,) of rows, numbered from 0."""
    values, numbers, counts = np.unique(codes, return_inverse=True, return_counts=True)
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


def _cramers_v(first: Integers, second: Integers) -> float:
    rows, sizes = len(first), (int(first.max(initial=0)) + 1, int(second.max(initial=0)) + 1)
    if rows < 2 or min(sizes) < 2:
        return 0.0
    counts = np.bincount(first * sizes[1] + second, minlength=sizes[0] * sizes[1]).reshape(sizes)
    shares = counts / rows
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    excess = (np.square(shares - expected) / expected).sum()
    excess = max(0.0, excess - (sizes[0] - 1) * (sizes[1] - 1) / (rows - 1))
    smaller = min(size - (size - 1) ** 2 / (rows - 1) for size in sizes)
    return float(min(1.0, np.sqrt(excess / (smaller - 1)))) if smaller > 1 else 0.0


def _ranks(codes: Codes) -> Floats:
    """The mean ranks (n,) of codes (n,)."""
    _, numbers, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[numbers], dtype=np.float64)
