"""What is released of a relationship, and how rows are drawn and matched by it.

Rows of several tables are drawn table by table, reference by reference. Answers of a link to joint
tables are computed on drawn rows of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.relational import constraints
from cloister.models.relational.likeness import Anchors
from cloister.models.relational.matching import match, match_in_slices
from cloister.models.relational.profiles import (
    MOST_UNKNOWNS,
    CoarseParts,
    CoarseTable,
    Problem,
    Profiles,
    ProfileTarget,
    Workload,
    joint_number,
    numbers_of,
    parts_of,
)
from cloister.schema import relations
from cloister.schema.domain import Table
from cloister.schema.partition import PairKinds, Partition
from cloister.schema.relations import of_parent

NOBODY = -1
"""Parent of a row whose reference is missing."""


@dataclass(frozen=True, eq=False)
class Side:
    """Rows of one side of a relationship: codes (rows,) by the names of the joined table."""

    codes: Mapping[str, Integers]
    rows: int

    def take(self, rows: Integers) -> Side:
        """The side of some rows."""
        return Side({name: codes[rows] for name, codes in self.codes.items()}, len(rows))


@dataclass(frozen=True, eq=False)
class Measured:
    """A noisy joint table: ``counts`` has one axis per attribute."""

    workload: Workload
    counts: Floats

    def of_children(self) -> Measured:
        """The table of the attributes of rows that refer, taken as those of an earlier parent."""
        parents = tuple(range(len(self.workload.parent)))
        return Measured(Workload(self.workload.child, ()), self.counts.sum(parents))


@dataclass(frozen=True, eq=False)
class Link:
    """The released facts of the relationship of a foreign key.

    ``degrees`` (max_rows + 1,) is the distribution of rows that refer to the same one; ``parts``
    are the partitions of the attributes of both tables, by their names in the joined table;
    ``ratios`` (kinds,) say of attributes of rows how much likelier two of one parent are so alike.
    """

    key: relations.ForeignKey
    degrees: Floats
    parts: Mapping[str, Partition]
    measured: tuple[Measured, ...] = ()
    ratios: Mapping[str, Floats] = field(default_factory=dict)

    def with_measured(self, tables: Iterable[Measured]) -> Link:
        """The link with further joint tables."""
        return replace(self, measured=(*self.measured, *tables))

    def at_most(self, degree: int) -> Link:
        """The link with degrees capped at a number."""
        if degree >= self.key.max_rows:
            return self
        degrees = self.degrees[: degree + 1].copy()
        degrees[-1] += self.degrees[degree + 1 :].sum()
        return replace(self, degrees=degrees)

    @property
    def mean(self) -> float:
        """The mean number of rows that refer to a row."""
        return float(self.degrees @ np.arange(len(self.degrees)))

    def drawn_children(self, parents: int) -> int:
        """The expected number of rows that refer to this many parents."""
        return round(parents * self.mean)

    def problem(self, parents: Side, children: Side) -> Problem:
        """The problem of relationships between rows of both tables."""
        names = (
            {name for table in self.measured for name in table.workload.parent},
            {name for table in self.measured for name in table.workload.child},
        )
        profiles = [
            Profiles.of(self._parts(side, attributes), side.rows)
            for side, attributes in zip((parents, children), names, strict=True)
        ]
        targets = tuple(self._target(table, *profiles) for table in self.measured)
        return Problem(profiles[0], profiles[1], targets)

    def parents_of(self, parents: Side, children: Side, rng: np.random.Generator) -> Integers:
        """The row number (children,) of each row's parent; at most ``max_rows`` have the same."""
        problem = self.problem(parents, children)
        if problem.unknowns <= MOST_UNKNOWNS:
            owners = match(problem, problem.solve(), self.degrees, rng)
        else:
            owners = match_in_slices(problem, self.degrees, rng)
        if not self.ratios:
            return owners
        # each parent keeps one of its rows in mind: so rows with its attributes are as before
        order, one = rng.permutation(children.rows), rng.integers(0, children.rows, parents.rows)
        one[owners[order]] = order
        rows = {name: children.codes[name] for name in self.ratios}
        kinds = {name: PairKinds(self.parts[name].column) for name in self.ratios}
        near = {name: codes[one] for name, codes in rows.items()}
        anchors = Anchors.of(kinds, self.ratios, near, rows, rng)
        return match_in_slices(problem, self.degrees, rng, anchors)

    def kinds_of(self, parents: Side) -> Integers:
        """A number (parents,) for each row: the same where all joint tables take rows as equal."""
        names = {name for table in self.measured for name in table.workload.parent}
        return Profiles.of(self._parts(parents, names), parents.rows).of_rows

    def _parts(self, side: Side, names: set[str]) -> dict[str, Integers]:
        return {
            name: self.parts[name].index(codes)
            for name, codes in side.codes.items()
            if name in names
        }

    def _target(self, table: Measured, parents: Profiles, children: Profiles) -> ProfileTarget:
        sizes = {name: partition.size for name, partition in self.parts.items()}
        of_parent, of_child = table.workload.parent, table.workload.child
        rows = int(np.prod([sizes[name] for name in of_parent]))
        shares = table.counts.reshape(rows, -1) / max(self.total(), 1.0)
        return ProfileTarget(
            parents.joint(of_parent, sizes),
            children.joint(of_child, sizes),
            shares + (1 - shares.sum()) / shares.size,
        )

    def total(self) -> float:
        """The number of rows that refer, as the joint tables show it on average."""
        return float(np.mean([table.counts.sum() for table in self.measured]))

    def meta(self) -> dict[str, Any]:
        """The link without its arrays, as JSON."""
        measured = [
            [list(table.workload.parent), list(table.workload.child)] for table in self.measured
        ]
        meta = {"parts": list(self.parts), "measured": measured}
        return meta | ({"alike": list(self.ratios)} if self.ratios else {})

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the link."""
        listed = {
            "parts": map(numbers_of, self.parts.values()),
            "counts": (table.counts for table in self.measured),
            "ratios": self.ratios.values(),
        }
        numbered = {
            f"{name}{index}": array
            for name, arrays in listed.items()
            for index, array in enumerate(arrays)
        }
        return {"degrees": self.degrees, **numbered}

    @classmethod
    def restored(
        cls,
        schema: relations.Schema,
        key: relations.ForeignKey,
        meta: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
    ) -> Link:
        """The link of :meth:`meta` and :meth:`arrays`."""
        columns = {
            column.name: column for side in relations.joined_domain(schema, key) for column in side
        }
        parts = {
            name: parts_of(columns[name], arrays[f"parts{index}"])
            for index, name in enumerate(meta["parts"])
        }
        measured = tuple(
            Measured(Workload(tuple(parent), tuple(child)), arrays[f"counts{index}"])
            for index, (parent, child) in enumerate(meta["measured"])
        )
        alike = enumerate(meta.get("alike", ()))
        ratios = {name: arrays[f"ratios{index}"] for index, name in alike}
        return cls(key, arrays["degrees"], parts, measured, ratios)


@dataclass(frozen=True, eq=False)
class Drawing:
    """Drawn rows without references, by table, and the row number of the parent, by joined table.

    ``numbers`` are rows by table; ``distinct`` are pairs of references, by table, no two rows of
    which are the same. ``rules`` are those across keys, by joined table.
    """

    schema: relations.Schema
    rng: np.random.Generator
    distinct: Mapping[str, tuple[str, str]]
    numbers: dict[str, int] = field(default_factory=dict)
    rows: dict[str, Table] = field(default_factory=dict)
    owners: dict[str, Integers] = field(default_factory=dict)
    rules: Mapping[str, constraints.KeyRules] = field(default_factory=dict)

    def add(self, name: str, drawn: Table | None, number: int) -> None:
        """Add the rows of a table; only their number if it has no attributes."""
        domain = relations.rows_domain(self.schema, name)
        codes = {
            column.name: drawn.codes[column.name] if drawn else np.arange(number)
            for column in domain
        }
        self.numbers[name], self.rows[name] = number, Table(domain, codes)

    def sides(self, key: relations.ForeignKey) -> tuple[Side, Side, Integers]:
        """The parents of a key, the rows that refer, and their numbers."""
        chosen = self._referring(key)
        codes = dict(relations.of_row(key.table, self.rows[key.table], chosen))
        for earlier in relations.earlier_keys(self.schema, key):
            owners = self.owners[relations.joined_table(earlier)][chosen]
            codes |= of_parent(earlier, self.rows[earlier.parent], owners)
        everyone = np.arange(self.numbers[key.parent])
        parents = of_parent(key, self.rows[key.parent], everyone)
        return Side(parents, len(everyone)), Side(codes, len(chosen)), chosen

    def relate(self, link: Link) -> None:
        """Give each row that refers by a key its parent."""
        key = link.key
        link = link.at_most(self.most(key))
        parents, children, chosen = self.sides(key)
        owners = np.full(self.numbers[key.table], NOBODY)
        if len(chosen) and parents.rows:
            owners[chosen] = link.parents_of(parents, children, self.rng)
        if key.to_itself:
            owners = constraints.without_cycles(owners, self.rng)
        self.owners[relations.joined_table(key)] = owners
        self._separate(key, link.kinds_of(parents))
        self._keep_rules(key)

    def most(self, key: relations.ForeignKey) -> int:
        """The most rows that may refer to the same one: in distinct pairs, one for each partner."""
        pair = self.distinct.get(key.table, ())
        references = (
            reference for reference in self.schema.parents_of(key.table) if reference.column in pair
        )
        partners = [self.numbers[reference.parent] for reference in references if reference != key]
        return min(key.max_rows, *partners) if key.column in pair and partners else key.max_rows

    def places(self, name: str) -> int | None:
        """The most rows of a table for which parents have places; None if it needs no parent."""
        required = self.schema.required_of(name)
        return min((self.numbers[key.parent] * self.most(key) for key in required), default=None)

    def database(self) -> relations.Database:
        """The tables with their references."""
        return relations.Database(
            self.schema, {name: self._whole(name) for name in self.schema.tables}
        )

    def _referring(self, key: relations.ForeignKey) -> Integers:
        """Rows that refer, at most as many as there are places."""
        if not key.optional:
            return np.arange(self.numbers[key.table])
        chosen = np.flatnonzero(self.rows[key.table].codes[key.column])
        most = self.numbers[key.parent] * self.most(key)
        return np.sort(self.rng.permutation(chosen)[:most])

    def _separate(self, key: relations.ForeignKey, kinds: Integers) -> None:
        """Exchange parents until no two rows of a table have the same pair of them.

        ``kinds`` (parents,) are those of `Link.kinds_of`.
        """
        pair = self.distinct.get(key.table, ())
        earlier_keys = [
            earlier
            for earlier in relations.earlier_keys(self.schema, key)
            if earlier.column in pair
        ]
        if key.column not in pair or not earlier_keys:
            return
        name, first = relations.joined_table(key), relations.joined_table(earlier_keys[0])
        self.owners[name] = constraints.without_duplicates(
            self.owners[first],
            self.owners[name],
            (self.numbers[earlier_keys[0].parent], self.numbers[key.parent]),
            kinds,
            self.most(key),
            self.rng,
        )

    def _keep_rules(self, key: relations.ForeignKey) -> None:
        """Change parents until the rules across a key hold; rows that fit none are left out."""
        name, rules = relations.joined_table(key), self.rules.get(relations.joined_table(key))
        if rules is None:
            return
        sides = self.rows[key.table], self.rows[key.parent]
        self.rows[key.table], self.owners[name] = constraints.keep_rules(
            rules, self.schema, key, sides, self.owners[name], self.most(key), self.rng
        )
        if not key.optional:
            self._leave_out(key.table, self.owners[name] == NOBODY)

    def _leave_out(self, table: str, rows: Booleans) -> None:
        self.rows[table] = self.rows[table].take(~rows)
        self.numbers[table] = int((~rows).sum())
        for key in self.schema.parents_of(table):
            if relations.joined_table(key) in self.owners:
                self.owners[relations.joined_table(key)] = self.owners[relations.joined_table(key)][
                    ~rows
                ]

    def _whole(self, name: str) -> Table:
        domain = self.schema.tables[name]
        codes = dict(self.rows[name].codes)
        for key in self.schema.parents_of(name):
            owners = self.owners[relations.joined_table(key)]
            keys = self.rows[key.parent].codes[key.key]
            null = domain[key.column].null_code
            named = keys[np.maximum(owners, 0)] if len(keys) else np.zeros_like(owners)
            codes[key.column] = named if null is None else np.where(owners == NOBODY, null, named)
        return Table(domain, {column: codes[column] for column in domain.names})


class Answers:
    """Expected counts of joint tables, in rows."""

    def __init__(self, link: Link, parents: Side, children: Side, rows: float) -> None:
        """``rows`` are those that refer, used as long as no joint table shows them."""
        self._link = link
        self._problem, parents, children = _small_enough(link, parents, children)
        self._shares = self._problem.shares(self._problem.solve())
        self._total = link.total() if link.measured else rows
        self._codes = {**parents.codes, **children.codes}
        self._parts = {name: link.parts[name].index(codes) for name, codes in self._codes.items()}

    def tables(self, workloads: Sequence[Workload], most: Sequence[int]) -> list[CoarseTable]:
        """The joint tables in at most so many parts of each attribute, each once."""
        coarse = {
            (name, parts): CoarseParts.of(self._link.parts[name], codes, parts)
            for name, codes in self._codes.items()
            for parts in most
        }
        tables = (
            CoarseTable(workload, counts, tuple(coarse[name, parts] for name in workload.names))
            for workload, counts in zip(workloads, self.of(workloads), strict=True)
            for parts in most
        )
        return list({(table.workload, table.shape): table for table in tables}.values())

    def of(self, tables: Sequence[Workload]) -> list[Floats]:
        """The expected counts of joint tables, one axis per attribute."""
        counts = []
        for workload in tables:
            parents = self._within(workload.parent, self._problem.parents)
            children = self._within(workload.child, self._problem.children)
            shape = [self._link.parts[name].size for name in workload.names]
            table = parents @ self._shares @ children.T
            counts.append(self._total * table.reshape(shape))
        return counts

    def _within(self, names: tuple[str, ...], profiles: Profiles) -> Floats:
        """The share (cells, profiles) of each joint part within each profile."""
        sizes = [self._link.parts[name].size for name in names]
        joint = joint_number([self._parts[name] for name in names], sizes, len(profiles.of_rows))
        cells = math.prod(sizes)
        flat = joint * profiles.number + profiles.of_rows
        counts = np.bincount(flat, minlength=cells * profiles.number)
        return np.asarray(counts.reshape(cells, profiles.number) / profiles.counts)


def _small_enough(link: Link, parents: Side, children: Side) -> tuple[Problem, Side, Side]:
    """The problem of as many rows as one can hold; rows of a pool are in random order already."""
    while (problem := link.problem(parents, children)).unknowns > MOST_UNKNOWNS:
        parents = parents.take(np.arange(max(parents.rows // 2, 1)))
        children = children.take(np.arange(max(children.rows // 2, 1)))
    return problem, parents, children
