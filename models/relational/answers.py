"""What the relationships of a link say of joint tables, by drawn rows of both sides."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cloister.arrays import Floats
from cloister.models.relational.candidates import Workload
from cloister.models.relational.link import Link, Side
from cloister.models.relational.matching.profiles import MOST_UNKNOWNS, Problem, Profiles
from cloister.models.relational.parts import joint_number


class Answers:
    """Expected counts of joint tables, in rows."""

    def __init__(self, link: Link, parents: Side, children: Side) -> None:
        self._link = link
        self._problem, parents, children = _small_enough(link, parents, children)
        self._shares = self._problem.shares(self._problem.solve())
        self._total = link.total() if link.measured else link.mean * parents.rows
        codes = {**parents.codes, **children.codes}
        self._parts = {name: link.parts[name].of(own) for name, own in codes.items()}

    def of(self, tables: Sequence[Workload]) -> list[Floats]:
        """The expected counts of joint tables, one axis an attribute."""
        found = []
        for workload in tables:
            parents = self._within(workload.parent, self._problem.parents)
            children = self._within(workload.child, self._problem.children)
            shape = [self._link.parts[name].size for name in workload.names]
            table = parents @ self._shares @ children.T
            found.append(self._total * table.reshape(shape))
        return found

    def _within(self, names: tuple[str, ...], profiles: Profiles) -> Floats:
        """The share (cells, profiles) of each joint part among the rows of each profile."""
        sizes = [self._link.parts[name].size for name in names]
        joint = joint_number([self._parts[name] for name in names], sizes, len(profiles.of_rows))
        cells = math.prod(sizes)
        flat = joint * profiles.number + profiles.of_rows
        counts = np.bincount(flat, minlength=cells * profiles.number)
        return np.asarray(counts.reshape(cells, profiles.number) / profiles.counts)


def _small_enough(link: Link, parents: Side, children: Side) -> tuple[Problem, Side, Side]:
    """The problem of as many rows as one holds; those of a pool are in random order."""
    while (problem := link.problem(parents, children)).unknowns > MOST_UNKNOWNS:
        parents = parents.take(np.arange(max(parents.rows // 2, 1)))
        children = children.take(np.arange(max(children.rows // 2, 1)))
    return problem, parents, children
