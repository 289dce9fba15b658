"""How many rows of each table, joined or not, one privacy unit can change: its fan-out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cloister.schema import relations
from cloister.schema.relations import ForeignKey, Schema


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
    starts = list(_by_start(schema))
    return {name: max(each[name] for each in starts) for name in starts[0]}


def families_changed(schema: Schema, table: str, keys: Iterable[ForeignKey]) -> int:
    """The most rows that differ of a table whose rows hold what refers to them by some keys.

    That is their number, and the attributes of two of them, with those of the rows that these name
    by references that are never missing, or in tables without rows of units.

    Privacy: proof. Of neighbours by one unit, r[table] rows go. One that stays differs only if a
        row that refers to it goes, since no other row's attributes change: a row goes with each
        that it must name, and tables without rows of units lose none that is named. Which of too
        many stay is a function of those that name the same one. So it is one row less and one more
        for each row that goes but does not go through its key, which is what the degrees of that
        key lose. A row that loses several is counted for each (``tests/laws/test_family_laws.py``).
    """
    degrees = [relations.degree_table(key) for key in keys]
    return max(
        each[table] + sum(each[name] - each[table] for name in degrees)
        for each in _by_start(schema)
    )


def across_units(schema: Schema) -> str | None:
    """Why rows of a table, or those that refer to each other, may be of several units.

    None if each row with a unit belongs to one, and refers to rows of that one alone.
    """
    if len(schema.units) > 1:
        return "units are rows of several tables"
    for name in schema.tables:
        if name in schema.holding and not relations.of_one_unit(schema, name):
            return f"a row of '{name}' may belong to several units"
    for key in schema.keys:
        if key.optional and key.parent in schema.holding:
            return f"'{key.table}.{key.column}' may lead from one unit to another"
    return None


def _by_start(schema: Schema) -> Iterator[Mapping[str, int]]:
    """The rows of each table that differ, by the table in which a unit starts."""
    for start in schema.units or (schema.lead,):
        yield _of_unit(schema, start, alone=False)
    for start in schema.tables:
        if start not in schema.holding:
            yield _of_unit(schema, start, alone=True)


def _of_unit(schema: Schema, start: str, alone: bool) -> dict[str, int]:
    """Rows by table of one row of ``start``; ``alone`` if no row refers to it."""

    def through(key: ForeignKey) -> int:
        return 0 if alone and key.parent == start else rows[key.parent] * key.max_rows

    rows: dict[str, int] = {}
    for name in schema.tables:
        rows[name] = int(name == start) + sum(map(through, schema.required_of(name)))
    changed = dict(rows)
    for key in schema.keys:
        children = rows[key.table]
        truncated = relations.is_truncated(schema, key) * children
        unlinked = through(key) + truncated if key.optional else 0
        staying = children if key.optional else children - through(key)
        changed[relations.joined_table(key)] = children + unlinked
        changed[relations.degree_table(key)] = rows[key.parent] + 2 * staying
    return changed
