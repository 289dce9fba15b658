"""Joint tables across a reference: which there may be, those measured, and rows of both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import parts_of
from cloister.schema import relations
from cloister.schema.partition import Partition

MOST_CANDIDATES = 2_000
"""Most joint tables to select among; if there are more, only those of two attributes."""


@dataclass(frozen=True)
class Workload:
    """A joint table: attributes of the parent, and of the row that refers to it."""

    parent: tuple[str, ...]
    child: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All attributes, in the order of the table's axes."""
        return (*self.parent, *self.child)


def workloads(parent: Sequence[str], child: Sequence[str]) -> tuple[Workload, ...]:
    """The joint tables of two and three attributes, one of each side at least."""
    two = tuple(
        Workload((parent_name,), (child_name,)) for parent_name in parent for child_name in child
    )
    three = tuple(_of_three(parent, child))
    return two + three if len(two) + len(three) <= MOST_CANDIDATES else two


def candidates(
    schema: relations.Schema, key: relations.ForeignKey, ways: int
) -> tuple[Workload, ...]:
    """The joint tables across a key that may be measured; of ``ways`` attributes, if there are any.

    Rows without attributes are related to their first parent's by the tables of their next key;
    where there is no next key, tables of the parents' attributes alone are counted.
    """
    child, parent = (domain.names for domain in relations.joined_domain(schema, key))
    if child:
        tables = workloads(parent, child)
        wanted = tuple(table for table in tables if len(table.names) == ways)
        return wanted or tables
    later = [
        reference
        for reference in schema.parents_of(key.table)
        if reference != key and not reference.optional
    ]
    if later:
        return ()
    pairs = (Workload(pair, ()) for pair in combinations(parent, 2))
    return (*(Workload((one,), ()) for one in parent), *pairs)


def _of_three(parent: Sequence[str], child: Sequence[str]) -> Iterator[Workload]:
    for pair in combinations(parent, 2):
        yield from (Workload(pair, (name,)) for name in child)
    for pair in combinations(child, 2):
        yield from (Workload((one,), pair) for one in parent)


@dataclass(frozen=True, eq=False)
class Side:
    """Rows of one side of a relationship: codes (rows,) by the names of the joined table."""

    codes: Mapping[str, Integers]
    rows: int


@dataclass(frozen=True, eq=False)
class Measured:
    """A noisy joint table: ``counts`` has one axis per attribute."""

    workload: Workload
    counts: Floats


@dataclass(frozen=True, eq=False)
class Link:
    """The joint tables ``measured`` across a foreign key.

    ``parts`` are the partitions of the attributes of both tables, by their names in the joined one.
    """

    key: relations.ForeignKey
    parts: Mapping[str, Partition]
    measured: tuple[Measured, ...] = ()

    def with_measured(self, tables: Iterable[Measured]) -> Link:
        """The link with further joint tables."""
        return replace(self, measured=(*self.measured, *tables))

    def meta(self) -> dict[str, Any]:
        """The tables without their arrays, as JSON."""
        measured = [
            [list(table.workload.parent), list(table.workload.child)] for table in self.measured
        ]
        return {"parts": list(self.parts), "measured": measured}

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the tables."""
        parts = {
            f"parts{index}": numbers_of(part) for index, part in enumerate(self.parts.values())
        }
        return parts | {f"counts{index}": each.counts for index, each in enumerate(self.measured)}

    @classmethod
    def restored(
        cls,
        schema: relations.Schema,
        key: relations.ForeignKey,
        meta: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
    ) -> Link:
        """The tables of :meth:`meta` and :meth:`arrays`."""
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
        return cls(key, parts, measured)


def numbers_of(parts: Partition) -> Integers:
    """The array from which a partition of a column is restored."""
    return parts.parts if parts.column.kind == "nominal" else parts.starts


def joint_number(
    numbers: Sequence[NDArray[np.integer[Any]]], sizes: Sequence[int], rows: int
) -> Integers:
    """One number (rows,) for the numbers of several attributes, the last varying fastest.

    ``sizes`` are how many numbers each attribute has; without attributes all rows have 0.
    """
    joint = np.zeros(rows, dtype=np.int64)
    for codes, size in zip(numbers, sizes, strict=True):
        joint = joint * size + codes
    return joint
