"""Rows of several tables within the bounds of their references, before the door."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from cloister.arrays import Array, Integers
from cloister.errors import DataError
from cloister.hashing import Words, keyed_rows
from cloister.privacy.door.table import first_by_lot, lots_of_rows, rows_first_in_line
from cloister.schema import relations
from cloister.schema.domain import Table, order_of_rows


def bound(database: relations.Database, key: bytes) -> relations.Database:
    """The rows without dangling references, and at most as many per parent as declared, by lot.

    A reference that may be missing is unlinked instead of leaving its row out. Rows of units stand
    in an order of no meaning: those of which a random part is left out parent by parent, and all
    others that refer to rows of units in an order by lot.

    Privacy: whether a row stays depends only on the rows that refer to the same parent, and on
        whether the parent stays; :func:`cloister.schema.relations.is_truncated` says where.

    Raises:
        DataError: more rows refer to the same one than declared, and none may be left out.
    """
    schema, tables = database.schema, dict(database.tables)
    if lead_key := schema.key_of(schema.lead):
        tables[schema.lead] = in_order_of_numbers(tables[schema.lead], lead_key, key)
    for name in schema.tables:
        for reference in schema.required_of(name):
            tables[name] = tables[name].take(
                relations.Database(schema, tables).referring(reference)
            )
        truncated = [*filter(partial(relations.is_truncated, schema), schema.required_of(name))]
        if not truncated and any(each.parent in schema.holding for each in schema.parents_of(name)):
            tables[name] = in_order_of_lots(tables[name], key + name.encode())
        for reference in truncated:
            rows, secret = tables[name], key_of_lots(reference, key)
            numbers = key_numbers(rows.stored[reference.column], key)
            lots = lots_of_rows(numbers, rows.stored.values(), secret)
            tables[name] = first_of_parents(relations.Database(schema, tables), reference, lots)
    return linked(relations.Database(schema, tables), schema.keys, key)


def key_numbers(codes: Array, key: bytes) -> Integers:
    """A number of 63 bits (n,) for each code of a key, that nobody knows without the secret one."""
    return (keyed_rows((codes,), key) >> np.uint64(1)).astype(np.int64)


def key_of_lots(reference: relations.ForeignKey, key: bytes) -> bytes:
    """The secret by which the rows of a reference have their lots."""
    return key + reference.table.encode()


def in_order_of_numbers(table: Table, column: str, key: bytes) -> Table:
    """The rows of a table in the order of the keyed numbers of a column."""
    return table.take(np.argsort(key_numbers(table.stored[column], key), kind="stable"))


def in_order_of_lots(table: Table, secret: bytes) -> Table:
    """The rows of a table in the order of their lots, which depend on each row alone."""
    nobody = np.zeros(table.rows, dtype=np.int64)
    return table.take(np.argsort(lots_of_rows(nobody, table.stored.values(), secret)))


def first_of_parents(
    database: relations.Database, reference: relations.ForeignKey, lots: Words
) -> Table:
    """Of rows that all refer to one that is there, the first by lot of each, parent by parent."""
    parents = relations.parent_rows(database, reference)
    rows = database.tables[reference.table]
    order = order_of_rows(rows, reference.order)
    return rows.take(first_by_lot(parents, lots, reference.max_rows, order))


def linked(
    database: relations.Database, keys: Iterable[relations.ForeignKey], key: bytes
) -> relations.Database:
    """The tables, in which references that may be missing lead to a row each, within bounds.

    Raises:
        DataError: more rows refer to the same one than declared, and none may be left out.
    """
    schema, tables, as_read = database.schema, dict(database.tables), database.tables
    for reference in keys:
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
