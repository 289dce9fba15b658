"""What is released of a relationship, and how rows of both tables are matched by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.schema.database import ForeignKey
from cloister.schema.domain import Table
from cloister.schema.joins import joined_column
from models.relational.candidates import Workload
from models.relational.matching import match
from models.relational.parts import Parts
from models.relational.profiles import MOST_UNKNOWNS, Problem, Profiles, Target

_LEAST_SLICE = 64
"""Parents of the smallest slice: fewer could not show a joint table."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A joint table that was counted with noise: ``counts`` has one axis an attribute."""

    workload: Workload
    counts: Integers


@dataclass(frozen=True, eq=False)
class Link:
    """The released facts of the relationship of a foreign key.

    ``degrees`` (max_rows + 1,) is the distribution of rows that refer to the same one; ``parts``
    are the partitions of the attributes of both tables, by their names in the joined table.
    """

    key: ForeignKey
    degrees: Floats
    parts: Mapping[str, Parts]
    measured: tuple[Measured, ...] = ()

    def with_measured(self, *tables: Measured) -> Link:
        """The link with further joint tables."""
        return replace(self, measured=(*self.measured, *tables))

    @property
    def mean(self) -> float:
        """The mean number of rows that refer to a row."""
        return float(self.degrees @ np.arange(len(self.degrees)))

    def drawn_children(self, parents: int, most: int) -> int:
        """How many rows refer to so many parents, one at least."""
        expected = min(round(parents * self.mean), parents * self.key.max_rows)
        return max(min(expected, most), 1)

    def problem(self, parents: Table, children: Table) -> Problem:
        """The problem of relationships between rows of both tables."""
        sides = (
            {name for table in self.measured for name in table.workload.parent},
            {name for table in self.measured for name in table.workload.child},
        )
        found = [
            Profiles.of(self._parts(rows, table, names), rows.rows)
            for rows, table, names in zip(
                (parents, children), (self.key.parent, self.key.table), sides, strict=True
            )
        ]
        targets = tuple(self._target(table, *found) for table in self.measured)
        return Problem(found[0], found[1], targets)

    def parents_of(self, parents: Table, children: Table, rng: np.random.Generator) -> Integers:
        """The row number (children,) of each row's parent."""
        slices = self._slices(parents, children)
        found = np.zeros(children.rows, dtype=np.int64)
        some = np.array_split(rng.permutation(parents.rows), slices)
        others = np.array_split(rng.permutation(children.rows), slices)
        for own, referring in zip(some, others, strict=True):
            problem = self.problem(parents.take(own), children.take(referring))
            found[referring] = own[match(problem, problem.solve(), self.degrees, rng)]
        return found

    def _slices(self, parents: Table, children: Table) -> int:
        """Slices such that each has few enough pairs of profiles, and rows for all places."""
        whole = self.problem(parents, children)
        slices = 1
        while (
            min(whole.parents.number, -(-parents.rows // slices))
            * min(whole.children.number, -(-children.rows // slices))
            > MOST_UNKNOWNS
            and parents.rows // (slices + 1) >= _LEAST_SLICE
        ):
            slices += 1
        while slices > 1 and (
            -(-children.rows // slices) > self.key.max_rows * (parents.rows // slices)
            or children.rows < slices
        ):
            slices -= 1
        return slices

    def _parts(self, rows: Table, table: str, names: set[str]) -> dict[str, Integers]:
        columns = ((joined_column(table, rows.domain[n]).name, n) for n in rows.domain.modelled)
        return {
            name: self.parts[name].of(rows.codes[column]).astype(np.int64)
            for name, column in columns
            if name in names
        }

    def _target(self, table: Measured, parents: Profiles, children: Profiles) -> Target:
        sizes = {name: own.size for name, own in self.parts.items()}
        of_parent, of_child = table.workload.parent, table.workload.child
        rows = int(np.prod([sizes[name] for name in of_parent]))
        shares = table.counts.reshape(rows, -1) / max(self.total(), 1.0)
        return Target(
            parents.joint(of_parent, sizes),
            children.joint(of_child, sizes),
            shares + (1 - shares.sum()) / shares.size,
        )

    def total(self) -> float:
        """The number of rows that refer, as the joint tables show it on average."""
        return float(np.mean([table.counts.sum() for table in self.measured]))
