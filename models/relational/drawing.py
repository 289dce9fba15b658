"""Rows of several tables as they are drawn: table by table, reference by reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.models.relational.constraints.distinct_links import without_duplicates
from cloister.models.relational.constraints.hierarchy import without_cycles
from cloister.models.relational.constraints.key_rules import KeyRules, keep_rules
from cloister.models.relational.link import Link, Side
from cloister.schema.domain import Table
from cloister.schema.relations import (
    Database,
    ForeignKey,
    Schema,
    earlier_keys,
    joined_table,
    of_parent,
    of_row,
    rows_domain,
)

NOBODY = -1
"""In place of a parent: the reference is missing."""


@dataclass(frozen=True, eq=False)
class Drawing:
    """Drawn rows without references, by table, and the row number of the parent, by joined table.

    ``numbers`` are rows by table; ``distinct`` are pairs of references, by table, no two rows of
    which are the same. ``rules`` are those across keys, by joined table.
    """

    schema: Schema
    rng: np.random.Generator
    distinct: Mapping[str, tuple[str, str]]
    numbers: dict[str, int] = field(default_factory=dict)
    rows: dict[str, Table] = field(default_factory=dict)
    owners: dict[str, Integers] = field(default_factory=dict)
    rules: Mapping[str, KeyRules] = field(default_factory=dict)

    def add(self, name: str, drawn: Table | None, number: int) -> None:
        """The rows of a table; those of one without attributes are only so many."""
        domain = rows_domain(self.schema, name)
        codes = {
            column.name: drawn.codes[column.name] if drawn else np.arange(number)
            for column in domain
        }
        self.numbers[name], self.rows[name] = number, Table(domain, codes)

    def sides(self, key: ForeignKey) -> tuple[Side, Side, Integers]:
        """The parents of a key, the rows that refer, and their numbers."""
        chosen = self._referring(key)
        own = dict(of_row(key.table, self.rows[key.table], chosen))
        for earlier in earlier_keys(self.schema, key):
            owners = self.owners[joined_table(earlier)][chosen]
            own |= of_parent(earlier, self.rows[earlier.parent], owners)
        everyone = np.arange(self.numbers[key.parent])
        parents = of_parent(key, self.rows[key.parent], everyone)
        return Side(parents, len(everyone)), Side(own, len(chosen)), chosen

    def relate(self, link: Link) -> None:
        """Give each row that refers by a key its parent."""
        key = link.key
        link = link.at_most(self.most(key))
        parents, children, chosen = self.sides(key)
        owners = np.full(self.numbers[key.table], NOBODY)
        if len(chosen) and parents.rows:
            owners[chosen] = link.parents_of(parents, children, self.rng)
        if key.to_itself:
            owners = without_cycles(owners, self.rng)
        self.owners[joined_table(key)] = owners
        self._separate(key)
        self._keep_rules(key)

    def most(self, key: ForeignKey) -> int:
        """The most rows that may refer to the same one: of distinct pairs, one of each partner."""
        pair = self.distinct.get(key.table, ())
        others = (own for own in self.schema.parents_of(key.table) if own.column in pair)
        partners = [self.numbers[own.parent] for own in others if own != key]
        return min(key.max_rows, *partners) if key.column in pair and partners else key.max_rows

    def places(self, name: str) -> int | None:
        """The most rows of a table that parents have places for; None if it needs no parent."""
        required = [key for key in self.schema.parents_of(name) if not key.optional]
        return min((self.numbers[key.parent] * self.most(key) for key in required), default=None)

    def database(self) -> Database:
        """The tables with their references."""
        return Database(self.schema, {name: self._whole(name) for name in self.schema.tables})

    def _referring(self, key: ForeignKey) -> Integers:
        """Rows that refer, no more than have a place."""
        if not key.optional:
            return np.arange(self.numbers[key.table])
        chosen = np.flatnonzero(self.rows[key.table].codes[key.column])
        most = self.numbers[key.parent] * self.most(key)
        return np.sort(self.rng.permutation(chosen)[:most])

    def _separate(self, key: ForeignKey) -> None:
        """Exchange parents until no two rows of a table have the same pair of them."""
        pair = self.distinct.get(key.table, ())
        others = [other for other in earlier_keys(self.schema, key) if other.column in pair]
        if key.column not in pair or not others:
            return
        name, first = joined_table(key), joined_table(others[0])
        self.owners[name] = without_duplicates(
            self.owners[first],
            self.owners[name],
            (self.numbers[others[0].parent], self.numbers[key.parent]),
            self.most(key),
            self.rng,
        )

    def _keep_rules(self, key: ForeignKey) -> None:
        """Change parents until the rules across a key hold; rows that fit none are left out."""
        name, own = joined_table(key), self.rules.get(joined_table(key))
        if own is None:
            return
        sides = self.rows[key.table], self.rows[key.parent]
        self.rows[key.table], self.owners[name] = keep_rules(
            own, self.schema, key, sides, self.owners[name], self.most(key), self.rng
        )
        if not key.optional:
            self._leave_out(key.table, self.owners[name] == NOBODY)

    def _leave_out(self, table: str, rows: Booleans) -> None:
        self.rows[table] = self.rows[table].take(~rows)
        self.numbers[table] = int((~rows).sum())
        for key in self.schema.parents_of(table):
            if joined_table(key) in self.owners:
                self.owners[joined_table(key)] = self.owners[joined_table(key)][~rows]

    def _whole(self, name: str) -> Table:
        domain = self.schema.tables[name]
        codes = dict(self.rows[name].codes)
        for key in self.schema.parents_of(name):
            owners = self.owners[joined_table(key)]
            keys = self.rows[key.parent].codes[key.key]
            null = domain[key.column].null_code
            named = keys[np.maximum(owners, 0)] if len(keys) else np.zeros_like(owners)
            codes[key.column] = named if null is None else np.where(owners == NOBODY, null, named)
        return Table(domain, {column: codes[column] for column in domain.names})
