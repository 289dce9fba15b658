"""Definitions of synthetic tables in a database: types, NOT NULL, keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from pandas.api import types as pt

from cloister.schema.attributes import Float
from cloister.schema.columns import Column, Grid, Listed, Serial
from cloister.schema.domain import Domain
from cloister.schema.relations.database import ForeignKey

_SMALL = np.iinfo(np.int32)
"""The range of INTEGER; BIGINT holds the rest."""


@dataclass(frozen=True)
class SyntheticTable:
    """A synthetic table in a Parquet file, with its name and keys in a database.

    ``primary`` is the column that names a row, ``unique`` are columns no two rows agree on.
    """

    name: str
    domain: Domain
    file: Path
    primary: str | None = None
    references: Sequence[ForeignKey] = field(default=())
    unique: Sequence[Sequence[str]] = field(default=())


def table_definitions(tables: Sequence[SyntheticTable]) -> list[sa.Table]:
    """The definitions of tables, in their order."""
    metadata = sa.MetaData()
    return [_definition(table, metadata) for table in tables]


def _definition(table: SyntheticTable, metadata: sa.MetaData) -> sa.Table:
    columns: list[Any] = [
        sa.Column(
            column.name,
            type_of(column),
            primary_key=column.name == table.primary,
            nullable=column.null_code is not None,
            autoincrement=False,
        )
        for column in table.domain
    ]
    references = [
        sa.ForeignKeyConstraint([key.column], [f"{key.parent}.{key.key}"])
        for key in table.references
    ]
    unique = [sa.UniqueConstraint(*names) for names in table.unique]
    return sa.Table(table.name, metadata, *columns, *references, *unique)


def type_of(column: Column) -> sa.types.TypeEngine[Any]:
    """The SQL type that holds all values of a column as a synthetic table has them."""
    dtype = pd.api.types.pandas_dtype(column.dtype)
    if pt.is_bool_dtype(dtype):
        return sa.Boolean()
    if pt.is_integer_dtype(dtype):
        least, most = _whole_range(column)
        return sa.Integer() if _SMALL.min <= least and most <= _SMALL.max else sa.BigInteger()
    if pt.is_float_dtype(dtype):
        return _decimal(column) or sa.Double()
    if pt.is_datetime64_any_dtype(dtype):
        return sa.Date() if column.attribute.type == "date" else sa.DateTime()
    return sa.String(_longest(column))


def _whole_range(column: Column) -> tuple[int, int]:
    """The least and the greatest whole number of a column, its special values among them."""
    if isinstance(column, Grid):
        last = column.origin + (column.steps - 1) * column.stride
        return min(column.origin, *column.beyond, last), max(last, *column.beyond, column.origin)
    if isinstance(column, Serial):
        return column.first, column.last
    assert isinstance(column, Listed)
    whole = [int(float(value)) for value in column.listed]
    return min(whole), max(whole)


def _decimal(column: Column) -> sa.Numeric[Any] | None:
    """An exact decimal where a spec declares how many places it has."""
    attribute = column.attribute
    if not isinstance(attribute, Float) or attribute.decimals is None:
        return None
    most = max(map(abs, (attribute.min, attribute.max, *attribute.special)))
    return sa.Numeric(len(str(int(most))) + attribute.decimals, attribute.decimals)


def _longest(column: Column) -> int:
    """Characters of the longest text of a column, one at least: SQL has no text of none."""
    if isinstance(column, Serial):
        return len(column.prefix) + max(column.width, len(str(column.last))) + len(column.suffix)
    return max(map(len, column.labels or ("",)), default=1) or 1
