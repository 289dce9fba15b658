"""The model of persons, and their rows: two from the model, then the further ones.

A further row is drawn several times, under the first of the two and under the second in turn. One
of these candidates is taken, by the weights of `Companions`, among those that break no rule with
rows before: rules on pairs of rows are checked against all of them, rules within a person against
that person's. What noise made impossible is resolved: missing rows are drawn from flatter
probabilities of what rules are on; then the person begins anew, the second time with attributes of
another one; then what is missing goes to persons with room, or to new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cloister.arrays import Integers
from cloister.constraints import DenialConstraint
from cloister.constraints.counting import satisfying
from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.models.constrained import merge_states
from cloister.models.core.bins import Histogram
from cloister.models.protocol import CountedRows, ModelState, counts_of
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler, Where, number_keys
from cloister.models.sampling.violation_index import DIRECT, PairIndex, Penalty
from cloister.models.transforms.companions import (
    CANDIDATES,
    Companions,
    Drawn,
    Numbers,
    RowDraws,
    RowModel,
    chosen_by,
)
from cloister.models.transforms.transformation import TransformedModel
from cloister.models.transforms.unit_tables import PERSONS, UnitTasks
from cloister.models.transforms.units import UnitRows
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import Serial
from cloister.schema.domain import Domain, Table, order_of_rows

_PILOT = 2_048
"""Persons drawn to estimate how many are needed: their mean number of rows is within 2 %."""

SPARE = 32
"""Persons among which some are chosen, near the end, so that whole ones have the rows wanted."""

_FEW = 4
"""Candidates of one of the first two rows, which are drawn anew only where rules need it."""

_PLAIN, _FLAT = 3, 40
"""Times that a missing row is drawn from the model, and then from flatter probabilities."""

_RESTARTS = 2
"""Times that a person begins anew; from the second one on with attributes of another person."""

_TURNS = 3
"""Times that rows go to persons with room; afterwards they go to new persons."""

_MOST = 8_192
"""Most candidates drawn at a time: bounds memory for attributes with many levels."""

FLATNESS = 0.5
"""Share of even probabilities, for missing rows, of attributes in rules: every value can be drawn,
and half the probability is the model's."""


_TWO_ROWS = (
    "persons are drawn first, each with its attributes, its number of rows and two of its rows; "
    "of one with more, each further row is drawn under one of these two"
)

_IN_ORDER = (
    "persons are drawn first, each with its attributes, its number of rows and its first two rows "
    "by {}; each further row is drawn under the one before it, as neighbours among later rows are"
)

_ONE_ROW = (
    "persons are drawn first, each with its attributes, its number of rows and one of its rows; "
    "each further row is drawn under the attributes and the number, as that one is"
)

_AS_FIRST = (
    "{} of further rows: drawn under the attributes of the person, its number of rows and the rest "
    "of the row, as those of the first row are"
)

_ALIKE = (
    "of several draws of a further row one is taken, with weights by which two rows of a person "
    "have the tables of the first two"
)

_NUMBERED = "persons are numbered afresh: a key of the output names a synthetic person"

_RESOLVED = (
    "rows that cannot be drawn under those before are drawn from flatter probabilities of the "
    "attributes that constraints are on, then the person begins anew, with attributes of another "
    "one if need be, or its rows go to other persons, or to new ones"
)


@dataclass(frozen=True)
class People:
    """Persons in order: rows ``units`` of their table, and numbers of rows ``counts`` (n,).

    Of a part of them, ``first`` is the number of the first person, ``rows_before`` counts the rows
    of those before, and ``spare`` is a number from which on no other part names persons: each has
    as many there as it has rows.
    """

    units: Table
    counts: Integers
    first: int = 0
    rows_before: int = 0
    spare: int = 0

    @classmethod
    def of(cls, tasks: UnitTasks, units: Table) -> People:
        """Those of a drawn table of units."""
        return cls(units.narrow(), np.minimum(tasks.counts(units), tasks.most_rows))

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
        some = self.take(slice(low, high))
        return replace(some, first=low, rows_before=before, spare=self.number + before)

    def take(self, some: Integers | slice) -> People:
        """Some persons."""
        return People(self.units.take(some), self.counts[some])

    def up_to(self, rows: int) -> People:
        """Persons with exactly so many rows in all, if these have as many; whole ones if possible.

        The first ones, but that some near the end are left out in favour of others; where no choice
        of them has as many rows, the last one loses some.
        """
        chosen, counts = whole_units(self.counts, rows)
        return replace(self.take(chosen), counts=counts)

    def followed_by(self, further: People) -> People:
        """These persons and others."""
        units = Table.concatenate([self.units, further.units])
        return People(units, np.append(self.counts, further.counts))

    def raised(self, rows: int, most: int, rng: np.random.Generator) -> People:
        """The same persons with more rows, ``rows`` in all, none with more than ``most``."""
        room = np.repeat(np.arange(self.number), most - self.counts)
        chosen = rng.choice(room, rows - self.rows, replace=False)
        return replace(self, counts=self.counts + np.bincount(chosen, minlength=self.number))

    def lowered(self, rows: int, rng: np.random.Generator) -> People:
        """The same persons with at most so many rows in all."""
        if self.rows <= rows:
            return self
        owners = rng.choice(np.repeat(np.arange(self.number), self.counts), rows, replace=False)
        return replace(self, counts=np.bincount(owners, minlength=self.number))


def whole_units(counts: Integers, rows: int) -> tuple[Integers, Integers]:
    """Units by number, and their rows (n,), exactly so many in all, of those with ``counts`` (m,).

    The first ones, but that some near the end are left out in favour of others; where no choice of
    them has as many rows, the last one loses some.
    """
    ends = np.cumsum(counts)
    whole = int(np.searchsorted(ends, rows, side="right"))
    begin = max(whole - SPARE, 0)
    left = rows - (int(ends[begin - 1]) if begin else 0)
    further = _with_sum(counts[begin : whole + SPARE], left)
    if further is not None:
        chosen = np.append(np.arange(begin), begin + further)
        return chosen, counts[chosen]
    fewer = np.minimum(counts, np.maximum(rows - (ends - counts), 0))
    chosen = np.arange(int((fewer > 0).sum()))
    return chosen, fewer[chosen]


def _with_sum(counts: Integers, total: int) -> Integers | None:
    """Which of some counts (n,) add up to a total, by number; None if none do."""
    last = {0: -1}  # the last of some counts that add up to a sum, first ones first
    for number, count in enumerate(counts.tolist()):
        for known in [*last]:
            if known + count <= total:
                last.setdefault(known + count, number)
    if total not in last:
        return None
    chosen = []
    while total:
        chosen.append(last[total])
        total -= int(counts[chosen[-1]])
    return np.array(chosen[::-1], dtype=np.int64)


def draw_people(
    tasks: UnitTasks, model: RowModel, rows: int, rng: SamplingSource, where: Where
) -> People:
    """Persons with exactly ``rows`` rows in all, whose attributes fulfil the conditions ``where``.

    Where the key's pattern names too few persons, they have more rows each. SampleError if they
    cannot be drawn.
    """

    def drawn(number: int) -> People:
        return People.of(tasks, model.sample(number, rng.spawn(1)[0], where))

    people = drawn(min(_PILOT, tasks.capacity))
    mean, people = float(people.counts.mean()), people.take(slice(0, 0))
    while people.rows < rows and people.number < tasks.capacity:
        wanted = min(max(round((rows - people.rows) / mean), 1), tasks.capacity - people.number)
        people = people.followed_by(drawn(wanted))
    if people.rows < rows:
        return people.raised(rows, tasks.most_rows, rng.generator)
    if spare := min(SPARE, tasks.capacity - people.number):
        people = people.followed_by(drawn(spare))
    return people.up_to(rows)


@dataclass(frozen=True)
class UnitsSampler(Sampler):
    """Draws tables of persons with several rows.

    All ``people`` depend on the seed alone, their further rows also on the chunk's number.
    """

    tasks: UnitTasks
    model: RowModel
    companions: Companions
    people: People | None = None

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.tasks.whole.domain

    @property
    def remembers(self) -> bool:
        """Whether rows depend on rows of persons before them."""
        return bool(self.model.constraint_sampler.pair_rules)

    @property
    def drawn_keys(self) -> tuple[str, ...]:
        """All: chunks are of whole persons, and so have other numbers of rows."""
        return tuple(column.name for column in self.domain if isinstance(column, Serial))

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> UnitsSampler:
        """The same with its ``people``; SampleError if there is a condition on single rows."""
        if of_rows := [name for name in where if name not in self.tasks.given]:
            raise SampleError(
                f"rows of a person differ in '{of_rows[0]}', which can have no condition; draw "
                "without, and select rows of the output"
            )
        people = draw_people(self.tasks, self.model, rows, rng.spawn(1)[0], where)
        return replace(self, people=people)

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """The rows of the prepared persons whose first row is among ``rows`` rows.

        SampleError if they cannot be drawn.
        """
        assert self.people is not None
        people = self.people.between(given.first, given.first + rows)
        return self.rows_of(people, given.before if self.remembers else (), rng)

    def rows_of(self, people: People, before: Iterable[Table], rng: SamplingSource) -> Table:
        """The rows of some people, with rows of others ``before``.

        SampleError if they cannot be drawn.
        """
        index = PairIndex(self.domain, tuple(map(Penalty, self.pair_rules)))
        for table in before:
            index.record(table)
        drawn = _RowsOfUnits(self, people, index, rng.generator).draw()
        return number_keys(drawn, people.rows_before, preset=(self.tasks.key,))

    @property
    def pair_rules(self) -> tuple[DenialConstraint, ...]:
        """The rules on pairs of rows that none by construction keeps, and those within units."""
        of_rows = set(self.tasks.of_rows)
        rules = self.model.constraint_sampler.pair_rules
        between = (rule for rule in rules if not of_rows.isdisjoint(rule.attributes))
        return (*between, *self.tasks.within)


class _RowsOfUnits:
    """The rows of some persons, drawn one after the other until each has as many as it should."""

    def __init__(
        self, sampler: UnitsSampler, people: People, index: PairIndex, rng: np.random.Generator
    ) -> None:
        self._sampler, self._tasks, self._index, self._rng = sampler, sampler.tasks, index, rng
        self._companions = sampler.companions
        self._draws = RowDraws(sampler.tasks, sampler.model)
        self._flat = RowDraws(sampler.tasks, sampler.model, FLATNESS)
        self._row_rules = [rule for rule in sampler.tasks.whole.hard if rule.arity == 1]
        self._spare, self._units, self._sizes = people.spare, people.units, people.counts.copy()
        self._started = np.ones(people.number, dtype=bool)
        if start := sampler.tasks.start:
            self._started = people.units.codes[start] == 1
            stored = {**people.units.stored, start: np.ones(people.number, np.int64)}
            self._units = Table(people.units.domain, stored)
        self._numbers = people.first + np.arange(people.number)
        self._drawn = np.zeros(people.number, dtype=np.int64)
        self._failed = np.zeros(people.number, dtype=np.int64)
        self._begun = np.zeros(people.number, dtype=np.int64)
        self._received, self._turns = np.zeros(people.number, dtype=bool), 0
        self._two = {n: np.zeros((people.number, 2), np.int64) for n in sampler.tasks.of_rows}
        self._sums = self._beside_none(np.arange(people.number))
        self._taken: list[tuple[Table, Integers, Integers]] = []

    def draw(self) -> Table:
        """All rows, person by person.

        Raises:
            SampleError: they cannot be drawn; names the constraints that prevent it.
        """
        self._take_first_rows()
        while len(missing := np.flatnonzero(self._drawn < self._sizes)):
            for some in self._blocks(missing):
                self._extend(some)
            self._resolve(missing[self._failed[missing] > _FLAT])
        tables = [Table.completed(self._sampler.domain, {}, 0)]
        owners = [np.zeros(0, dtype=np.int64)]
        for table, units, begun in self._taken:
            valid = begun == self._begun[units]
            tables.append(table.take(valid))
            owners.append(units[valid])
        rows, units = Table.concatenate(tables), np.concatenate(owners)
        if (numbers := order_of_rows(rows, self._tasks.order)) is not None:
            return rows.take(np.lexsort((numbers, units)))
        return rows.take(np.argsort(units, kind="stable"))

    def _take_first_rows(self) -> None:
        """Take the first two rows that persons were drawn with, where no rule is against it."""
        some = np.flatnonzero((self._sizes > 0) & self._started)
        names = (*self._tasks.of_rows, *self._tasks.shared)
        first = {name: self._of(some, name) for name in names}
        codes, present = self._tasks.present(first, self._tasks.of_rows)
        rows = Table.completed(self._sampler.domain, codes, len(some))
        self._choose(some, (rows, present), 1)
        two = np.flatnonzero((self._drawn == 1) & (self._sizes > 1))
        codes = dict(self._tasks.second_rows(self._units.take(two)))
        codes |= {name: self._of(two, name) for name in self._tasks.shared}
        self._choose(two, self._draws.completed(codes, self._rng), 1)

    def _of(self, units: Integers, name: str) -> Integers:
        """The codes (n,) of an attribute of the table of persons."""
        return self._units.stored[name][units].astype(np.int64)

    def _blocks(self, missing: Integers) -> Iterator[Integers]:
        """Persons (n,) to be drawn for together: with no row, one, or more, and drawn alike."""
        kinds = 2 * np.minimum(self._drawn[missing], 2) + (self._failed[missing] > _PLAIN)
        for kind in np.unique(kinds):
            some = missing[kinds == kind]
            times = self._candidates(int(kind) // 2)
            yield from np.array_split(some, -(-len(some) * times // _MOST))

    def _extend(self, units: Integers) -> None:
        """Draw one more row of each person (n,), all of which have no row, one, or more."""
        rank, flat = int(self._drawn[units[0]]), bool(self._failed[units[0]] > _PLAIN)
        draws, times = self._flat if flat else self._draws, self._candidates(rank)
        some = np.repeat(units, times)
        codes = {name: self._of(some, name) for name in self._tasks.shared}
        if not rank:
            self._choose(units, draws.first(codes, self._rng), times)
            return
        if self._tasks.start and rank > 1:
            codes[self._tasks.start] = np.zeros(len(some), dtype=np.int64)
        turns = np.tile(np.arange(times) % (1 if self._tasks.order else min(rank, 2)), len(units))
        codes |= {name: two[some, turns] for name, two in self._two.items()}
        self._choose(units, draws.further(codes, self._rng), times)

    def _candidates(self, rank: int) -> int:
        """How many candidates of a row there are, after so many of its person."""
        return CANDIDATES if rank > 1 and not self._tasks.order else _FEW

    def _choose(self, units: Integers, candidates: Drawn, times: int) -> None:
        """Take one of ``times`` candidates of each person (n,), row by row, if one breaks no rule.

        Of a further row by its weight beside the rows before.
        """
        table, alive = candidates
        named = np.repeat(self._numbers[units], times)
        rows = Table(table.domain, {**table.stored, self._tasks.key: named})
        possible = alive & satisfying(self._row_rules, rows)
        logs = np.where(possible, 0.0, -np.inf).reshape(len(units), times)
        if self._companions.sizes and times > _FEW:
            numbers = self._companions.numbers(rows.stored).reshape(len(units), times, -1)
            logs += self._companions.logs(numbers, self._sums[units], self._sizes[units])
        choice = chosen_by(logs, self._rng)
        if self._index.penalties:
            choice = np.full(len(logs), -1, dtype=np.int64)
            everyone = np.arange(len(logs))
            self._index.choose(rows, logs, everyone, choice, DIRECT, self._rng)
        fits = choice >= 0
        self._failed[units] = np.where(fits, 0, self._failed[units] + 1)
        self._keep(rows.take(np.flatnonzero(fits) * times + choice[fits]), units[fits])

    def _keep(self, rows: Table, units: Integers) -> None:
        """Add a row of each person (n,)."""
        self._taken.append((rows.narrow(), units, self._begun[units]))
        turns = np.zeros_like(units) if self._tasks.order else self._drawn[units]
        early = turns < 2
        for name, codes in self._two.items():
            codes[units[early], turns[early]] = rows.stored[name][early]
        if self._companions.sizes:
            self._sums[units] += self._companions.sums(self._companions.numbers(rows.stored))
        self._drawn[units] += 1

    def _resolve(self, stuck: Integers) -> None:
        """Let persons (n,) begin anew, or give away the rows that they cannot have."""
        if not len(stuck):
            return
        complete = np.flatnonzero(self._drawn == self._sizes)
        again = (self._begun[stuck] < _RESTARTS) & ~self._received[stuck]
        self._hand_over(stuck[~again], complete)
        fresh = stuck[again]
        if self._index.penalties:
            for table, units, begun in self._taken:
                gone = np.isin(units, fresh) & (begun == self._begun[units])
                self._index.record(table.take(gone), -1)
        self._begun[fresh] += 1
        self._drawn[fresh] = self._failed[fresh] = 0
        changed = fresh[(self._begun[fresh] > 1) & bool(self._tasks.least)]
        if len(complete) and len(changed):
            self._donate(changed, self._rng.choice(complete, len(changed)))
        self._sums[fresh] = self._beside_none(fresh)

    def _donate(self, units: Integers, donors: Integers) -> None:
        """Give persons (n,) the attributes of others (n,)."""
        stored = {name: codes.copy() for name, codes in self._units.stored.items()}
        for name in self._tasks.given:
            stored[name][units] = stored[name][donors]
        self._units = Table(self._units.domain, stored)

    def _hand_over(self, stuck: Integers, complete: Integers) -> None:
        """Give the rows that persons (n,) lack to complete ones with room, and to new persons."""
        missing = int((self._sizes[stuck] - self._drawn[stuck]).sum())
        if not missing:
            return
        if self._tasks.least and not self._drawn[stuck].all():
            raise self._failure(missing)
        self._sizes[stuck] = self._drawn[stuck]
        self._turns += 1
        sizes = self._sizes[complete]
        room = (sizes > 0) & (sizes < self._tasks.most_rows) & ~self._received[complete]
        taken = self._rng.permutation(complete[room & (self._turns <= _TURNS)])[:missing]
        self._sizes[taken] += 1
        self._received[taken] = True
        if self._tasks.least:
            self._add_persons(missing - len(taken), complete)

    def _add_persons(self, new: int, complete: Integers) -> None:
        """Add persons of one row each, with the attributes of complete ones."""
        if not new:
            return
        self._spare += new
        if self._spare > self._tasks.capacity or not len(complete):
            raise self._failure(new)
        donors = self._rng.choice(complete, new)
        self._units = Table.concatenate([self._units, self._units.take(donors)])
        self._numbers = np.append(self._numbers, self._spare - new + np.arange(new))
        self._sizes = np.append(self._sizes, np.ones(new, dtype=np.int64))
        zeros = np.zeros(new, dtype=np.int64)
        self._drawn = np.append(self._drawn, zeros)
        self._failed = np.append(self._failed, zeros)
        self._begun = np.append(self._begun, zeros)
        self._received = np.append(self._received, zeros > 0)
        none = np.zeros((new, 2), dtype=np.int64)
        self._two = {name: np.concatenate([codes, none]) for name, codes in self._two.items()}
        added = np.arange(len(self._sizes) - new, len(self._sizes))
        self._sums = np.concatenate([self._sums, self._beside_none(added)])

    def _beside_none(self, units: Integers) -> Numbers:
        """The parts (n, parts) beside a first row of units (n,): those of the units."""
        codes = {name: self._of(units, name) for name in self._companions.of_units}
        return self._companions.beside(codes, len(units))

    def _failure(self, missing: int) -> SampleError:
        rules = (*self._row_rules, *self._sampler.pair_rules)
        names = ", ".join(f"'{rule.name}'" for rule in rules) or "the hard constraints together"
        return SampleError(
            f"{count_of(missing, 'row')} of persons could not be drawn under {names}; "
            "request fewer rows, widen a domain, or make a constraint soft"
        )


def counted_units(
    tasks: UnitTasks, model: RowModel, names: Mapping[str, str] | None = None
) -> CountedRows:
    """What the ``model`` of units was told of their rows; ``names`` of attributes by column.

    No counts where rows have an order: the first row is none by lot then.
    """
    counts, first = None if tasks.order else counts_of(model), frozenset(tasks.of_rows)
    return CountedRows(
        model, tasks.units, counts, number=tasks.counted, by_lot=first, names=names or {}
    )


@dataclass(frozen=True)
class UnitsModel(TransformedModel[UnitRows]):
    """The model of a table of persons, which also gives their further rows."""

    @property
    def persons(self) -> RowModel:
        """The model of persons."""
        model: RowModel = self.models[PERSONS]
        return model

    @property
    def sampler(self) -> UnitsSampler:
        """Persons, then their further rows."""
        assert self.transformation.companions is not None
        return UnitsSampler(self.transformation.tasks, self.persons, self.transformation.companions)

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histograms of the attributes of first rows."""
        names = self.transformation.tasks.of_rows
        return {
            name: histogram for name, histogram in self.persons.histograms.items() if name in names
        }

    @property
    def counted_rows(self) -> CountedRows:
        """What was counted of the rows: persons, by the number of them."""
        return counted_units(self.transformation.tasks, self.persons)

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        companions, tasks = self.transformation.companions, self.transformation.tasks
        mixed = tasks.second and tasks.fixed
        two = _IN_ORDER.format(tasks.order) if tasks.order in tasks.second else _TWO_ROWS
        return (
            two if tasks.second else _ONE_ROW,
            *((_AS_FIRST.format(", ".join(tasks.fixed)),) if mixed else ()),
            *(f"{PERSONS}: {sentence}" for sentence in self.persons.post_processing()),
            *((_ALIKE,) if companions is not None and companions.sizes else ()),
            _RESOLVED,
            _NUMBERED,
        )

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        tasks, companions = self.transformation.tasks, self.transformation.companions
        assert companions is not None
        state, stored = self.persons.state()
        meta: dict[str, Any] = {PERSONS: {"state": state, "rows": tasks.units.data_rows}}
        of_companions, arrays = companions.state()
        named = {f"{PERSONS}/{key}": array for key, array in stored.items()}
        second = {"companions": of_companions, "second": list(tasks.second)}
        return merge_states((meta, named), (second, arrays))
