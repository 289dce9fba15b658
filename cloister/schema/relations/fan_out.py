"""How many rows of each table behind the door one privacy unit changes: fan-outs multiply."""

from __future__ import annotations

from collections.abc import Mapping

from cloister.schema.relations.database import ForeignKey, Schema
from cloister.schema.relations.joins import degree_table, joined_table


def is_truncated(schema: Schema, key: ForeignKey) -> bool:
    """Whether of too many rows that refer to the same one a random part is left out.

    Elsewhere data with more is refused, or nothing there needs the bound. Privacy: what stays of a
    parent's rows depends on that parent's rows alone. A row of two parents that both hold rows of
    units could not be left out so: an added parent with any number of rows would take the place of
    others at as many parents as it likes. A reference that is optional may be, since it leads to
    one parent: the row itself stays.
    """
    if key.optional:
        return key.parent in schema.holding
    return not schema.any_row and [key] == _held(schema, key.table)


def is_refused(schema: Schema, key: ForeignKey) -> bool:
    """Whether data is refused in which more rows refer to the same one than declared."""
    return key.parent in schema.holding and not is_truncated(schema, key)


def rows_changed(schema: Schema) -> Mapping[str, int]:
    """The most rows of each table behind the door that differ between neighbours by one unit.

    Rows of the tables, of the joined ones, and of the tables of degrees. Also covered is one row
    alone of a table that holds no rows of units, if no row refers to it.

    Privacy: proof. Let a unit start at a row of table X, and r[T] be the rows of T that go with it:
        r[X] = 1, and by each reference of T that is not optional r[P] d of its parent P, with d =
        ``max_rows``, since bounded data has no more. Joined rows of a key T -> P: the own rows
        r[T]; if it is optional, also the r[P] d rows that stay without a parent, and if links are
        truncated there, r[T] that take the free places of own ones at parents that stay, one for
        one, because a row has one link and what stays of a parent's rows is a function of that
        parent's rows as they were read, whatever became of their other references. Where it is not
        optional, truncation takes place at the only parent that holds rows of units, and own rows
        go with it: no place becomes free. Degrees of a key: the r[P] rows of parents that go, and
        two rows (one less, one more) for each parent that stays and loses one: at most as many as
        own rows that did not come through this key. The greatest over all X holds for every unit
        (``tests/laws/test_relational_laws.py``).
    """
    starts = [_of_unit(schema, start, alone=False) for start in schema.units or (schema.lead,)]
    others = [name for name in schema.tables if name not in schema.holding]
    starts += [_of_unit(schema, start, alone=True) for start in others]
    return {name: max(each[name] for each in starts) for name in starts[0]}


def _of_unit(schema: Schema, start: str, alone: bool) -> dict[str, int]:
    """Rows by table of one row of ``start``; ``alone`` if no row refers to it."""

    def through(key: ForeignKey) -> int:
        return 0 if alone and key.parent == start else rows[key.parent] * key.max_rows

    rows: dict[str, int] = {}
    for name in schema.tables:
        keys = (key for key in schema.parents_of(name) if not key.optional)
        rows[name] = int(name == start) + sum(map(through, keys))
    found = dict(rows)
    for key in schema.keys:
        own = rows[key.table]
        unlinked = through(key) + is_truncated(schema, key) * own if key.optional else 0
        kept = own if key.optional else own - through(key)
        found[joined_table(key)] = own + unlinked
        found[degree_table(key)] = rows[key.parent] + 2 * kept
    return found


def _held(schema: Schema, table: str) -> list[ForeignKey]:
    """The references of a table that are not optional, to tables that hold rows of units."""
    keys = schema.parents_of(table)
    return [key for key in keys if not key.optional and key.parent in schema.holding]


def arithmetic(schema: Schema) -> tuple[str, ...]:
    """How many rows of each table a unit has, in words: a line for each table that refers."""
    changed = rows_changed(schema)
    return tuple(
        f"{name}: at most {changed[name]} ({_terms(schema, name, changed)})"
        for name in schema.tables
        if name in schema.holding and any(not key.optional for key in schema.parents_of(name))
    )


def _terms(schema: Schema, name: str, changed: Mapping[str, int]) -> str:
    terms = [
        f"{changed[key.parent]} of {key.parent} x {key.max_rows} each"
        for key in _held(schema, name)
    ]
    return (
        f"the greatest of 1 and each of: {', '.join(terms)}"
        if schema.any_row
        else " + ".join(terms)
    )
