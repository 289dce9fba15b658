"""Several tables that workers hold, divided into databases of whole units.

A row goes to the range of the number of its unit, so a block has all rows of its units, and what is
bounded, joined and counted in memory is so in each block, by the same functions. A row of a deeper
table first meets the row that it refers to, which knows the unit. Tables without rows of units are
whole with each block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from cloister.schema import relations
from cloister.schema.domain import Domain, Table, empty_table
from cloister.schema.relations import Database, ForeignKey, Schema
from cloister.tasks.data import bounding, held_rows
from cloister.tasks.data.held_rows import HeldBlocks, HeldUnits, RowBound, Share
from cloister.tasks.data.workers import Workers

_MOST_BLOCKS = 256
"""Blocks of units: each part of a table has a piece for each, which take the scheduler time."""


@dataclass(frozen=True)
class HeldDatabase(Database):
    """Tables in databases that workers hold: of ``units``, with all of their rows, and ``outside``.

    That one has the rows of tables without units, as those of units have them too.
    """

    workers: Workers = field(repr=False)
    units: Sequence[Any] = field(repr=False)
    outside: Sequence[Any] = field(repr=False)

    @classmethod
    def over(
        cls, schema: Schema, workers: Workers, units: Sequence[Any], outside: Sequence[Any]
    ) -> HeldDatabase:
        """The tables of databases."""
        tables = {
            name: _held(
                workers,
                domain,
                partial(_table_of, name),
                units if name in schema.holding else outside,
            )
            for name, domain in schema.tables.items()
        }
        return cls(schema, tables, workers, units, outside)

    def by_unit(self, function: Callable[[Database], Mapping[str, Table]]) -> Mapping[str, Table]:
        """The tables that ``function`` makes of each database of units, held where they are."""
        return self._made(function, self.units)

    def beside_units(
        self, function: Callable[[Database], Mapping[str, Table]]
    ) -> Mapping[str, Table]:
        """Those that it makes of the rows without units, once."""
        return self._made(function, self.outside)

    def _made(
        self, function: Callable[[Database], Mapping[str, Table]], databases: Sequence[Any]
    ) -> Mapping[str, Table]:
        made = self.workers.hold(function, databases)
        return {
            name: _held(self.workers, table.domain, partial(_made_table, name), made)
            for name, table in function(self._empty).items()
        }

    @property
    def _empty(self) -> Database:
        tables = {name: empty_table(domain) for name, domain in self.schema.tables.items()}
        return Database(self.schema, tables)

    def queried(self) -> Mapping[str, Table]:
        """What queries read of these rows, held where it was made."""
        schema, hold = self.schema, self.workers.hold
        units, outside = (hold(Database.queried, each) for each in (self.units, self.outside))
        of_units = {name: name in schema.holding for name in schema.tables}
        for key in schema.keys:
            of_units[relations.joined_table(key)] = key.table in schema.holding
            of_units[relations.degree_table(key)] = key.parent in schema.holding
        none = self._empty.queried()
        tables = {
            name: _held(
                self.workers,
                table.domain,
                partial(_made_table, name),
                units if of_units[name] else outside,
            )
            for name, table in none.items()
        }
        for key in schema.keys:
            name = relations.degree_table(key)
            if key.table in schema.holding and not of_units[name]:
                tables[name] = _held(
                    self.workers,
                    none[name].domain,
                    partial(_summed_degrees, name, key.max_rows),
                    *([each] for each in units),
                )
        return tables


def _held(
    workers: Workers,
    domain: Domain,
    function: Callable[..., tuple[Table, None]],
    *arguments: Sequence[Any],
) -> HeldUnits:
    blocks = workers.hold(function, *arguments)
    return HeldUnits.over(HeldBlocks.of(workers, domain, blocks))


def _table_of(name: str, database: Database) -> tuple[Table, None]:
    return database.tables[name], None


def _made_table(name: str, made: Mapping[str, Table]) -> tuple[Table, None]:
    return made[name], None


def _summed_degrees(name: str, most: int, *queried: Mapping[str, Table]) -> tuple[Table, None]:
    """The degrees of rows that units share, each at most ``most``, by those in each database."""
    degrees = [each[name].codes[relations.DEGREE] for each in queried]
    summed = np.minimum(sum(degrees[1:], degrees[0]), most)
    return Table(queried[0][name].domain, {relations.DEGREE: summed}).narrow(), None


def divided_by_units(
    workers: Workers,
    schema: Schema,
    blocks: Mapping[str, Sequence[Any]],
    key: bytes,
    long: int,
) -> HeldDatabase:
    """The rows of ``blocks`` of each table within their bounds, in databases of whole units.

    They are those, and in the order, of :func:`cloister.tasks.data.bounding.bound` in memory, if
    each row with a unit has one. A parent with more than ``long`` rows in a block is bounded twice.

    Raises:
        DataError: rows that others refer to have the same key.

    Privacy: the rows of a unit, and nothing else, decide which of them stay.
    """
    _require_unique_keys(workers, schema, blocks, key)
    names = [name for name in schema.tables if name in schema.holding]
    number = min(max(len(blocks[name]) for name in names), _MOST_BLOCKS)
    whole = {
        name: workers.hold(_whole, *([block] for block in blocks[name]))
        for name in schema.tables
        if name not in schema.holding
    }
    outside = workers.hold(partial(_outside, schema, key), [tuple(whole)], *whole.values())
    exchange, shares = _Exchange(workers, schema, key, number, long), dict[str, Sequence[Any]]()
    for name in names:
        read = partial(_share, schema, name, key)
        rows: Sequence[Any] = workers.hold(read, blocks[name], outside * len(blocks[name]))
        if schema.key_of(schema.lead):
            rows = exchange.by_unit(name, rows, shares)
        shares[name] = rows
    gather, number = partial(_units, schema, key, names), len(shares[schema.lead])
    units = workers.hold(gather, outside * number, *shares.values())
    return HeldDatabase.over(schema, workers, units, outside)


@dataclass(frozen=True)
class _Exchange:
    """How rows come to the ``number`` ranges of their units' numbers."""

    workers: Workers
    schema: Schema
    key: bytes
    number: int
    long: int

    def by_unit(
        self, name: str, rows: Sequence[Any], shares: Mapping[str, Sequence[Any]]
    ) -> Sequence[Any]:
        """The rows of a table in ranges; ``shares`` are those of the tables that precede it."""
        references = self.schema.keys_to_units(name)
        if not references:
            to_lead = partial(held_rows.by_number, self.number)
            return held_rows.exchanged(self.workers, to_lead, _in_order, rows, self.number)
        (reference,) = references
        lots = bounding.key_of_lots(reference, self.key)
        most = RowBound(reference.max_rows, lots, reference.order)
        rows = held_rows.bounded_together(self.workers, most, rows, self.long, self.number)
        if reference.parent == self.schema.lead:
            return rows
        divide = partial(_by_key, reference.key, self.key, self.number)
        parents = self._exchanged(divide, shares[reference.parent])
        met = self.workers.hold(partial(_with_units, self.schema, reference), rows, parents)
        return self._exchanged(partial(held_rows.by_number, self.number), met)

    def _exchanged(self, divide: Callable[[Share], Any], shares: Sequence[Any]) -> Sequence[Any]:
        return held_rows.exchanged(
            self.workers, divide, held_rows.put_together, shares, self.number
        )


def _require_unique_keys(
    workers: Workers, schema: Schema, blocks: Mapping[str, Sequence[Any]], key: bytes
) -> None:
    for parent in dict.fromkeys(reference.parent for reference in schema.keys):
        reference = next(each for each in schema.keys if each.parent == parent)
        parts = blocks[parent]
        divide = partial(_keys, reference.key, key, len(parts))
        if any(workers.map(bool, held_rows.exchanged(workers, divide, _repeat, parts, len(parts)))):
            raise relations.same_key_error(reference)


def _in_order(*shares: Share) -> Share:
    """The rows of several shares in the order of their units."""
    rows = held_rows.put_together(*shares)
    return rows.take(np.argsort(rows.people, kind="stable"))


def _keys(column: str, key: bytes, number: int, block: tuple[Table, Any]) -> list[Share]:
    rows = block[0].select([column])
    return held_rows.by_number(number, Share(rows, bounding.key_numbers(rows.stored[column], key)))


def _repeat(*shares: Share) -> bool:
    """Whether rows of one column are the same."""
    (codes,) = held_rows.put_together(*shares).table.stored.values()
    return len(np.unique(codes)) < len(codes)


def _whole(*blocks: tuple[Table, Any]) -> Table:
    return Table.concatenate(block[0] for block in blocks)


def _outside(schema: Schema, key: bytes, names: Sequence[str], *tables: Table) -> Database:
    """The tables without rows of units, within bounds; the others have no rows."""
    given = dict(zip(names, tables, strict=True))
    rows = {n: given.get(n, empty_table(domain)) for n, domain in schema.tables.items()}
    return bounding.bound(Database(schema, rows), key)


def _share(
    schema: Schema, name: str, key: bytes, block: tuple[Table, Any], outside: Database
) -> Share:
    """Rows whose references to tables without units lead to a row, by the number of the others."""
    table = block[0]
    for reference in schema.required_of(name):
        if reference.parent not in schema.holding:
            rows = Database(schema, {**outside.tables, name: table})
            table = table.take(rows.referring(reference))
    references = schema.keys_to_units(name)
    column = references[0].column if references else schema.key_of(name)
    if column is None:
        return Share(table, np.zeros(table.rows, dtype=np.int64))
    return Share(table, bounding.key_numbers(table.stored[column], key))


def _by_key(column: str, key: bytes, number: int, share: Share) -> list[Share]:
    """The keys of rows, with the numbers of their units, in ranges of their own numbers."""
    keys = share.table.select([column])
    units = Share(keys, share.people)
    return units.divided(
        held_rows.ranges(bounding.key_numbers(keys.stored[column], key), number), number
    )


def _with_units(schema: Schema, reference: ForeignKey, share: Share, parents: Share) -> Share:
    """Rows with the numbers of the units of those that they refer to, if these are there."""
    tables = {reference.table: share.table, reference.parent: parents.table}
    owners = relations.parent_rows(Database(schema, tables), reference)
    there = np.flatnonzero(owners >= 0)
    return share.take(there)._replace(people=parents.people[owners[there]])


def _units(
    schema: Schema, key: bytes, names: Sequence[str], outside: Database, *shares: Share
) -> Database:
    """The database of all rows of some units, and of the tables without any."""
    tables = dict(outside.tables)
    for name, share in zip(names, shares, strict=True):
        tables[name] = share.table
        for reference in schema.keys_to_units(name):
            there = np.flatnonzero(Database(schema, tables).referring(reference))
            table, _, lots = share.take(there)
            assert lots is not None
            tables[name] = table
            tables[name] = bounding.first_of_parents(Database(schema, tables), reference, lots)
    of_units = [reference for reference in schema.keys if reference.table in schema.holding]
    return bounding.linked(Database(schema, tables), of_units, key)
