"""Synthetic persons: their attributes, and how many rows each has of the rows that are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloister.arrays import Integers
from cloister.models.persons.parts import PersonTasks
from cloister.models.protocol import Model
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table

_PILOT = 2_048
"""Persons drawn to learn how many are needed: their mean number of rows is off by 2 % at most."""


@dataclass(frozen=True)
class People:
    """Persons in order: fine ``codes`` (n,) by attribute, and numbers of rows ``counts`` (n,).

    Of a part of them, ``first`` is the number of the first person, ``rows_before`` counts the rows
    of those before, and ``spare`` is a number from which on no other part names persons: each has
    as many there as it has rows.
    """

    codes: Mapping[str, Integers]
    counts: Integers
    first: int = 0
    rows_before: int = 0
    spare: int = 0

    @property
    def number(self) -> int:
        """How many they are."""
        return len(self.counts)

    @cached_property
    def rows(self) -> int:
        """Rows of all of them."""
        return int(self.counts.sum())

    def between(self, begin: int, end: int) -> People:
        """The persons whose first row has a number from ``begin`` to ``end - 1``."""
        starts = np.cumsum(self.counts) - self.counts
        low, high = (int(place) for place in np.searchsorted(starts, (begin, end)))
        before = int(starts[low]) if low < self.number else self.rows
        some = self._take(slice(low, high))
        return replace(some, first=low, rows_before=before, spare=self.number + before)

    def up_to(self, rows: int) -> People:
        """The first persons, with so many rows in all if they have as many."""
        starts = np.cumsum(self.counts) - self.counts
        counts = np.minimum(self.counts, np.maximum(rows - starts, 0))
        return replace(self, counts=counts)._take(slice(0, int((counts > 0).sum())))

    def followed_by(self, others: People) -> People:
        """These persons and others."""
        codes = {name: np.append(own, others.codes[name]) for name, own in self.codes.items()}
        return People(codes, np.append(self.counts, others.counts))

    def raised(self, rows: int, most: int, rng: np.random.Generator) -> People:
        """The same persons with more rows, ``rows`` in all, none with more than ``most``."""
        room = np.repeat(np.arange(self.number), most - self.counts)
        chosen = rng.choice(room, rows - self.rows, replace=False)
        return replace(self, counts=self.counts + np.bincount(chosen, minlength=self.number))

    def _take(self, part: slice) -> People:
        codes = {name: own[part] for name, own in self.codes.items()}
        return People(codes, self.counts[part])


def draw_people(tasks: PersonTasks, model: Model, rows: int, rng: SamplingSource) -> People:
    """Persons with exactly ``rows`` rows in all; of the last one, rows may be left out.

    Where the key's pattern names too few persons, they have more rows each.
    """
    pilot = _people(tasks, model.sample(_PILOT, rng.spawn(1)[0]))
    mean = float(pilot.counts.mean())
    found = pilot.up_to(0)
    while found.rows < rows and found.number < tasks.capacity:
        wanted = min(max(round((rows - found.rows) / mean), 1), tasks.capacity - found.number)
        found = found.followed_by(_people(tasks, model.sample(wanted, rng.spawn(1)[0])))
    if found.rows < rows:
        return found.raised(rows, tasks.most_rows, rng.generator)
    return found.up_to(rows)


def _people(tasks: PersonTasks, drawn: Table) -> People:
    counts = np.minimum(tasks.counts(drawn), tasks.most_rows)
    return People({name: drawn.codes[name] for name in tasks.given}, counts)
