"""Rows of several tables within the bounds of their references, before the door."""

from __future__ import annotations

from functools import partial

import numpy as np

from cloister.errors import DataError
from cloister.privacy.door.table import rows_first_in_line, rows_within_bound
from cloister.schema import relations
from cloister.schema.domain import Table


def bound(database: relations.Database, key: bytes) -> relations.Database:
    """The rows without dangling references, and at most as many per parent as declared, by lot.

    A reference that may be missing is unlinked instead of leaving its row out.

    Privacy: whether a row stays depends only on the rows that refer to the same parent, and on
        whether the parent stays; :func:`cloister.schema.relations.is_truncated` says where.

    Raises:
        DataError: more rows refer to the same one than declared, and none may be left out.
    """
    schema, tables = database.schema, dict(database.tables)
    for name in schema.tables:
        required = [reference for reference in schema.parents_of(name) if not reference.optional]
        for reference in required:
            tables[name] = tables[name].take(
                relations.Database(schema, tables).referring(reference)
            )
        for reference in filter(partial(relations.is_truncated, schema), required):
            tables[name] = _bounded(tables[name], reference, key)
    as_read = dict(tables)
    for reference in schema.keys:
        current = relations.Database(schema, tables)
        if reference.optional:
            tables[reference.table] = _linked(current, reference, as_read[reference.table], key)
        if relations.is_refused(schema, reference):
            _require_bound(current, reference)
    return relations.Database(schema, tables)


def _linked(
    database: relations.Database, reference: relations.ForeignKey, as_read: Table, key: bytes
) -> Table:
    """The table with references unlinked that lead to no row, or beyond the bound of a parent.

    Privacy: the random order is that of the rows ``as_read``. Other references after truncation may
        depend on other units: ordering by them, removing a row could change links of other rows.
    """
    table, domain = database.tables[reference.table], database.schema.tables[reference.table]
    codes = table.codes[reference.column].astype(np.int64)
    stay = np.flatnonzero(database.referring(reference))
    if relations.is_truncated(database.schema, reference):
        secret = key + reference.table.encode() + reference.column.encode()
        stay = stay[rows_first_in_line(codes[stay], as_read.take(stay), reference.max_rows, secret)]
    linked = codes == domain[reference.column].null_code
    linked[stay] = True
    return Table(
        table.domain, {**table.codes, reference.column: np.where(linked, codes, relations.UNLINKED)}
    )


def _require_bound(database: relations.Database, reference: relations.ForeignKey) -> None:
    codes = database.tables[reference.table].codes[reference.column]
    if len(codes) and np.unique(codes, return_counts=True)[1].max() > reference.max_rows:
        raise DataError(
            f"table '{reference.table}', column '{reference.column}': more than "
            f"{reference.max_rows} rows refer to the same row of '{reference.parent}'; raise "
            "max_rows, or leave rows out at the source: to do it here would not be private, since "
            "rows of both sides are protected"
        )


def _bounded(table: Table, reference: relations.ForeignKey, key: bytes) -> Table:
    parents, secret = table.codes[reference.column], key + reference.table.encode()
    stay = rows_within_bound(parents, table.stored.values(), reference.max_rows, secret)
    return table.take(stay)
