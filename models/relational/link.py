"""What is released of a relationship, and how rows of both tables are matched by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.relational.candidates import Workload
from cloister.models.relational.matching.match import match
from cloister.models.relational.matching.profiles import (
    MOST_UNKNOWNS,
    Problem,
    Profiles,
    ProfileTarget,
)
from cloister.models.relational.matching.slices import match_in_slices
from cloister.models.relational.parts import Parts
from cloister.schema.relations import ForeignKey


@dataclass(frozen=True, eq=False)
class Side:
    """Rows of one side of a relationship: codes (rows,) by the names of the joined table."""

    codes: Mapping[str, Integers]
    rows: int

    def take(self, rows: Integers) -> Side:
        """The side of some rows."""
        return Side({name: own[rows] for name, own in self.codes.items()}, len(rows))


@dataclass(frozen=True, eq=False)
class Measured:
    """A joint table that was counted with noise: ``counts`` has one axis an attribute."""

    workload: Workload
    counts: Integers

    def of_children(self) -> Measured:
        """The table of the attributes of rows that refer, as those of an earlier parent."""
        parents = tuple(range(len(self.workload.parent)))
        return Measured(Workload(self.workload.child, ()), self.counts.sum(parents))


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

    def with_measured(self, tables: Iterable[Measured]) -> Link:
        """The link with further joint tables."""
        return replace(self, measured=(*self.measured, *tables))

    def at_most(self, degree: int) -> Link:
        """The link whose degrees are at most some number."""
        if degree >= self.key.max_rows:
            return self
        kept = self.degrees[: degree + 1].copy()
        kept[-1] += self.degrees[degree + 1 :].sum()
        return replace(self, degrees=kept)

    @property
    def mean(self) -> float:
        """The mean number of rows that refer to a row."""
        return float(self.degrees @ np.arange(len(self.degrees)))

    def drawn_children(self, parents: int) -> int:
        """How many rows refer to so many parents."""
        return round(parents * self.mean)

    def problem(self, parents: Side, children: Side) -> Problem:
        """The problem of relationships between rows of both tables."""
        names = (
            {name for table in self.measured for name in table.workload.parent},
            {name for table in self.measured for name in table.workload.child},
        )
        found = [
            Profiles.of(self._parts(side, own), side.rows)
            for side, own in zip((parents, children), names, strict=True)
        ]
        targets = tuple(self._target(table, *found) for table in self.measured)
        return Problem(found[0], found[1], targets)

    def parents_of(self, parents: Side, children: Side, rng: np.random.Generator) -> Integers:
        """The row number (children,) of each row's parent; at most ``max_rows`` have the same."""
        problem = self.problem(parents, children)
        if problem.unknowns <= MOST_UNKNOWNS:
            return match(problem, problem.solve(), self.degrees, rng)
        return match_in_slices(problem, self.degrees, rng)

    def _parts(self, side: Side, names: set[str]) -> dict[str, Integers]:
        return {
            name: self.parts[name].of(codes).astype(np.int64)
            for name, codes in side.codes.items()
            if name in names
        }

    def _target(self, table: Measured, parents: Profiles, children: Profiles) -> ProfileTarget:
        sizes = {name: own.size for name, own in self.parts.items()}
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
