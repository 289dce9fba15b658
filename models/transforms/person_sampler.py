"""Rows of synthetic persons: persons from their own model, their rows from that of the rows.

The rows of a person are drawn under its attributes. Rules on pairs of rows are checked against all
rows before, rules within a person against that person's. What noise made impossible is resolved:
first a person under whose attributes no rows can be drawn takes those of another one, and missing
rows are drawn with flatter probabilities of what rules are on; then what the rules within a person
leave no room for goes to other persons, or to new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloister.arrays import Integers
from cloister.constraints.counting import satisfying
from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.models.protocol import Model
from cloister.models.relational.likeness import LikeAnchors, Likeness
from cloister.models.sampling.chain import flatten_chain
from cloister.models.sampling.conditions import GivenSampler
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler, Where, number_keys
from cloister.models.sampling.row_by_row import AcceptedRows, Penalty
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.transforms.person_tables import PersonTasks
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import Serial
from cloister.schema.domain import Domain, Table

_PILOT = 2_048
"""Persons drawn to estimate how many are needed: their mean number of rows is within 2 %."""

_TRIES = 1_000
"""Draws of one row under its person's attributes, before something about the person is changed."""

_IDLE = 20_000
"""Rows in a row without one kept, before that."""

_LEAST = 2_048
"""Least rows drawn at a time: if few are missing, each several times."""

_COPIES = 4
"""Most copies of a row drawn at a time under rules on pairs: copies exclude each other."""

_MOST = 8_192
"""Most rows drawn at a time: bounds memory for attributes with many levels."""

_CHANGES = 30
"""Most changes of persons, or moves of rows, before a draw is given up."""

_ASKED = 3
"""Times that missing rows go to persons with room; afterwards they go to new persons."""

_FLATNESS = 0.5
"""Share of even probabilities, for missing rows, of attributes in rules: every value can be drawn,
and half the probability is the model's."""

_POSSIBLE = 64
"""Rows drawn from the model of rows where no person has attributes that it allows."""

_SEED = 20_261_123
"""Public seed of those rows: the same for all chunks, so that they agree on one person."""


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
        """Number of persons."""
        return len(self.counts)

    @cached_property
    def rows(self) -> int:
        """Rows of all of them."""
        return int(self.counts.sum())

    def between(self, begin: int, end: int) -> People:
        """The persons whose first row has a number from ``begin`` to ``end - 1``."""
        starts = np.cumsum(self.counts) - self.counts
        low, high = (int(position) for position in np.searchsorted(starts, (begin, end)))
        before = int(starts[low]) if low < self.number else self.rows
        some = self._take(slice(low, high))
        return replace(some, first=low, rows_before=before, spare=self.number + before)

    def up_to(self, rows: int) -> People:
        """The first persons, with so many rows in all if they have as many."""
        starts = np.cumsum(self.counts) - self.counts
        counts = np.minimum(self.counts, np.maximum(rows - starts, 0))
        return replace(self, counts=counts)._take(slice(0, int((counts > 0).sum())))

    def followed_by(self, further: People) -> People:
        """These persons and others."""
        codes = {
            name: np.append(values, further.codes[name]) for name, values in self.codes.items()
        }
        return People(codes, np.append(self.counts, further.counts))

    def raised(self, rows: int, most: int, rng: np.random.Generator) -> People:
        """The same persons with more rows, ``rows`` in all, none with more than ``most``."""
        room = np.repeat(np.arange(self.number), most - self.counts)
        chosen = rng.choice(room, rows - self.rows, replace=False)
        return replace(self, counts=self.counts + np.bincount(chosen, minlength=self.number))

    def _take(self, part: slice) -> People:
        codes = {name: values[part] for name, values in self.codes.items()}
        return People(codes, self.counts[part])


def draw_people(tasks: PersonTasks, model: Model, rows: int, rng: SamplingSource) -> People:
    """Persons with exactly ``rows`` rows in all; of the last one, rows may be left out.

    Where the key's pattern names too few persons, they have more rows each.
    """
    pilot = _people(tasks, model.sample(_PILOT, rng.spawn(1)[0]))
    mean = float(pilot.counts.mean())
    people = pilot.up_to(0)
    while people.rows < rows and people.number < tasks.capacity:
        wanted = min(max(round((rows - people.rows) / mean), 1), tasks.capacity - people.number)
        people = people.followed_by(_people(tasks, model.sample(wanted, rng.spawn(1)[0])))
    if people.rows < rows:
        return people.raised(rows, tasks.most_rows, rng.generator)
    return people.up_to(rows)


def _people(tasks: PersonTasks, drawn: Table) -> People:
    counts = np.minimum(tasks.counts(drawn), tasks.most_rows)
    return People({name: drawn.codes[name] for name in tasks.given}, counts)


@dataclass(frozen=True)
class PersonsSampler(Sampler):
    """Draws tables of persons with several rows.

    ``finish`` gives the columns of the table to drawn ``rows``. All ``people`` depend on the seed
    alone, their rows also on the chunk's number.
    """

    tasks: PersonTasks
    persons: Model
    rows: ConstraintSampler
    finish: Callable[[Table], Table]
    likeness: Mapping[str, Likeness]
    people: People | None = None

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.tasks.whole.domain

    @property
    def remembers(self) -> bool:
        """Whether rows depend on rows of persons before them."""
        return self.rows.remembers

    @property
    def drawn_keys(self) -> tuple[str, ...]:
        """All: chunks are of whole persons, and so have other numbers of rows."""
        return tuple(column.name for column in self.domain if isinstance(column, Serial))

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> PersonsSampler:
        """The same with its ``people``; SampleError if there is a condition on rows."""
        if where:
            raise SampleError(
                "rows that belong to persons are not drawn under conditions; draw without, and "
                "select rows of the output"
            )
        return replace(self, people=draw_people(self.tasks, self.persons, rows, rng.spawn(1)[0]))

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """The rows of the prepared persons whose first row is among ``rows`` rows.

        SampleError if they cannot be drawn.
        """
        assert self.people is not None
        people = self.people.between(given.first, given.first + rows)
        accepted = self._accepted_rows()
        accepted.record(given.before)
        drawn = _RowsOfPersons(self, people, accepted, rng.generator).draw()
        return number_keys(drawn, people.rows_before, preset=(self.tasks.key,))

    def _accepted_rows(self) -> AcceptedRows:
        """Rows that later ones must fit: of all persons, and within each."""
        hard = [Penalty(rule) for rule in (*self.rows.pair_rules, *self.tasks.within)]
        key = (self.tasks.key,)
        return AcceptedRows(self.domain, self.rows.chain, self.rows.algorithm, hard, given=key)


class _RowsOfPersons:
    """The rows of some persons: each wanted row has an owner, and is drawn until one is kept."""

    def __init__(
        self,
        sampler: PersonsSampler,
        people: People,
        accepted: AcceptedRows,
        rng: np.random.Generator,
    ) -> None:
        self._sampler = sampler
        self._spare = people.spare
        self._numbers = people.first + np.arange(people.number)
        self._codes = dict(people.codes)
        self._owners = np.repeat(np.arange(people.number), people.counts)
        self._changed = np.zeros(people.number, dtype=bool)
        self._copies = _COPIES if sampler.rows.pair_rules or sampler.tasks.within else _TRIES
        self._asked = 0
        self._anchored = np.zeros(people.number, dtype=bool)
        self._anchors = {name: np.zeros(people.number, dtype=np.int64) for name in sampler.likeness}
        self._accepted, self._rng = accepted, rng
        self._given = GivenSampler(sampler.rows.chain, sampler.tasks.given, accepted)
        within = (rule.attributes for rule in sampler.tasks.within)
        self._ruled = sampler.rows.ruled.union(*within)
        chain = flatten_chain(sampler.rows.chain, _FLATNESS, self._ruled)
        self._flat = replace(self._given, chain=chain)
        self._kept = [Table.completed(sampler.domain, {}, 0)]
        self._wanted = [self._owners[:0]]

    def draw(self) -> Table:
        """All rows, person by person.

        Raises:
            SampleError: they cannot be drawn; names the constraints that prevent it.
        """
        missing = np.arange(len(self._owners))
        for _ in range(_CHANGES):
            missing = self._fill_in_order(missing)
            if not len(missing):
                wanted = np.concatenate(self._wanted)
                order = np.lexsort((wanted, self._owners[wanted]))
                return Table.concatenate(self._kept).take(order)
            first, self._given = self._given is not self._flat, self._flat
            missing = self._resolve(missing, first)
        raise self._failure(len(missing))

    def _fill_in_order(self, missing: Integers) -> Integers:
        """Draw missing rows, the first row of each person before the others, which are like it."""
        if not self._sampler.likeness:
            return self._fill(missing)
        alone = missing[~self._anchored[self._owners[missing]]]
        first = alone[np.unique(self._owners[alone], return_index=True)[1]]
        failed = self._fill(first)
        left = np.setdiff1d(missing, first, assume_unique=True)
        ready = self._anchored[self._owners[left]]
        return np.concatenate([failed, left[~ready], self._fill(left[ready])])

    def _fill(self, missing: Integers) -> Integers:
        """Draw missing rows; returns those (n,) that are still missing."""
        tries = idle = 0
        while len(missing) and tries < _TRIES and idle <= _IDLE:
            times = min(max(_LEAST // len(missing), 1), _TRIES - tries, self._copies)
            wanted, left = missing, len(missing)
            for begin in range(0, left, _MOST):
                some = np.tile(wanted[begin : begin + _MOST], times)
                missing = np.setdiff1d(missing, self._keep_drawn(some), assume_unique=True)
            tries += times
            idle = 0 if len(missing) < left else idle + left * times
        return missing

    def _keep_drawn(self, wanted: Integers) -> Integers:
        """Draw each wanted row (n,) once; returns those of which one was kept."""
        owners, sampler = self._owners[wanted], self._sampler
        codes = {name: values[owners] for name, values in self._codes.items()}
        codes[sampler.tasks.key] = self._numbers[owners]
        batch = self._given.draw(codes, self._rng, self._importance(owners))
        drawn = Table.completed(sampler.rows.domain, batch.codes, batch.rows)
        fits = batch.alive & sampler.rows.acceptance.keep(drawn, self._rng)
        fits &= sampler.rows.feasible(drawn)
        table = sampler.finish(drawn)
        fitting = np.flatnonzero(fits)
        chosen = fitting[np.sort(np.unique(wanted[fitting], return_index=True)[1])]
        admitted = np.zeros(len(wanted), dtype=bool)
        admitted[chosen[self._accepted.admit(table.take(chosen), self._rng)]] = True
        self._accepted.withdraw(table.take(~admitted), batch.reached[~admitted])
        self._kept.append(table.take(admitted))
        self._wanted.append(wanted[admitted])
        self._anchor_persons(table.take(admitted), owners[admitted])
        return wanted[admitted]

    def _importance(self, owners: Integers) -> LikeAnchors | None:
        """What makes rows like their person's anchors; None for first rows."""
        likeness = self._sampler.likeness
        if not likeness or not self._anchored[owners].all():
            return None
        free = {
            name: ratios
            for name, ratios in likeness.items()
            if self._given is not self._flat or name not in self._ruled
        }
        return LikeAnchors(free, {name: self._anchors[name][owners] for name in free})

    def _anchor_persons(self, rows: Table, owners: Integers) -> None:
        """Give anchors to persons by their first row."""
        fresh = ~self._anchored[owners]
        if not fresh.any():
            return
        for name, anchors in self._anchors.items():
            likeness = self._sampler.likeness[name]
            anchors[owners[fresh]] = likeness.anchors(rows.codes[name][fresh], self._rng)
        self._anchored[owners] = True

    def _resolve(self, missing: Integers, first: bool) -> Integers:
        """Change what prevents missing rows (n,); returns those missing then.

        At ``first`` persons that have some rows stay: flatter probabilities may give them the rest.
        """
        stuck = np.unique(self._owners[missing])
        fresh = stuck[~self._changed[stuck] & ~self._anchored[stuck]]
        complete = np.setdiff1d(self._owners, stuck)
        if len(fresh):
            self._drop_rows(fresh)
            for name, donated in self._donated(complete, len(fresh)).items():
                self._codes[name] = self._codes[name].copy()
                self._codes[name][fresh] = donated
            self._changed[fresh] = True
            return np.union1d(missing, np.flatnonzero(np.isin(self._owners, fresh)))
        if not first:
            self._hand_over(missing, complete)
        return missing

    def _drop_rows(self, persons: Integers) -> None:
        for index, (table, wanted) in enumerate(zip(self._kept, self._wanted, strict=True)):
            gone = np.isin(self._owners[wanted], persons)
            self._accepted.remove(table.take(gone))
            self._kept[index], self._wanted[index] = table.take(~gone), wanted[~gone]
        self._anchored[persons] = False

    def _donated(self, complete: Integers, persons: int) -> dict[str, Integers]:
        """Attributes (persons,) of complete persons, or where there are none, possible ones.

        Persons that agree on everything break no rule on persons.
        """
        if not len(complete):
            return {name: np.full(persons, code) for name, code in self._possible().items()}
        donors = self._rng.choice(complete, persons)
        return {name: values[donors] for name, values in self._codes.items()}

    def _hand_over(self, missing: Integers, complete: Integers) -> None:
        """Give missing rows (n,) to complete persons with room, and the rest to new persons.

        No person is asked twice: one that cannot take a row passes it on, a few times.
        """
        self._asked += 1
        unasked = complete[~self._changed[complete] & (self._asked <= _ASKED)]
        counts = np.bincount(self._owners, minlength=len(self._numbers))[unasked]
        room = np.repeat(unasked, np.maximum(self._sampler.tasks.most_rows - counts, 0))
        taken = self._rng.permutation(room)[: len(missing)]
        self._changed[taken] = True
        new = len(missing) - len(taken)
        self._owners[missing] = np.append(taken, len(self._numbers) + np.arange(new))
        for name, donated in self._donated(complete, new).items():
            self._codes[name] = np.append(self._codes[name], donated)
        self._numbers = np.append(self._numbers, self._spare + np.arange(new))
        self._changed = np.append(self._changed, np.ones(new, dtype=bool))
        self._anchored = np.append(self._anchored, np.zeros(new, dtype=bool))
        for name, anchors in self._anchors.items():
            self._anchors[name] = np.append(anchors, np.zeros(new, dtype=np.int64))
        self._spare += new
        if self._spare > self._sampler.tasks.capacity:
            raise self._failure(new)

    def _possible(self) -> dict[str, int]:
        """The attributes of a person that the model of rows allows."""
        tasks = self._sampler.tasks
        rows = self._sampler.rows.draw(_POSSIBLE, SamplingSource(_SEED))
        alone = [rule for rule in tasks.persons.hard if rule.arity == 1]
        rows = rows.take(satisfying(alone, rows))
        if not rows.rows:
            raise self._failure(len(self._owners))
        return {name: int(rows.codes[name][0]) for name in tasks.given}

    def _failure(self, missing: int) -> SampleError:
        sampler = self._sampler
        rules = (*sampler.rows.row_rules, *sampler.rows.pair_rules, *sampler.tasks.within)
        names = ", ".join(f"'{rule.name}'" for rule in rules) or "the hard constraints together"
        return SampleError(
            f"{count_of(missing, 'row')} of persons could not be drawn under {names}; "
            "request fewer rows, widen a domain, or make a constraint soft"
        )
