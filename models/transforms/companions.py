"""Further rows of a unit: which go with all rows before, by released pairs alone.

A model gives candidates, each under one of the first two rows of a unit. They are weighed by how
often their parts occur beside those of all rows so far, and of the unit itself: a row r has a
weight of exp(sum of W[i, j] over the parts i of r and j of each of these, and of V[i, j] over the
parts i and j of r). The weights are found such that two rows of one unit have the joint tables of
the first two rows that the model has from the data, and each row the joint tables of first rows,
in itself and with its unit: the model has many more of these than of second rows. Drawn and
compared, weights move by the logarithms of their ratios, as in iterative proportional fitting of a
pairwise Markov network, in which they start at nothing.

Privacy: post-processing of a fitted model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.constrained import ConstrainedModel
from cloister.models.core.bins import parts_by
from cloister.models.protocol import Arrays, counts_of
from cloister.models.sampling.ancestral import ImportanceWeight
from cloister.models.sampling.chain import ConstrainedChain, flatten_chain
from cloister.models.sampling.conditions import GivenSampler
from cloister.models.task import Task
from cloister.models.transforms.differenced import DifferencedModel
from cloister.models.transforms.differences import differences_of
from cloister.models.transforms.unit_tables import UnitTasks
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table
from cloister.schema.partition import Partition

CANDIDATES = 8
"""Rows of which one is chosen as a further row of a unit."""

_STEPS = 30
"""Steps in which weights are found: households are as near as after sixty."""

_MOMENTUM = 0.5
"""Part of a step that the next one goes on with: without, households of four went to and fro."""

_FARTHER = 1.5
"""Distance, over the least so far, beyond which weights go back to those and steps are halved."""

_MOST_WITHIN = 12
"""Attributes of rows up to which two parts of one row are weighed: 78 pairs of them."""

_RIDGE = 2e-4
"""Added to shares of pairs, so that of rare ones, which noise and drawing decide, ratios are 1."""

_LEAST_UNITS = 400
"""Units of so many rows by which weights of their own are found."""

FURTHER = 3
"""Rows from which on a unit has further ones."""

_WIDER = 1.5
"""How much larger the numbers of rows of a group are than those of the one before."""

_PILOT_ROWS = 30_000
"""Rows of the units of a group that are drawn in each step, about, and at most."""

_PILOT_TIMES = 4
"""Rows of all groups that are drawn in each step, over those of the data, at most: the error of
drawing them is half of that with which the data was drawn."""

_POOL = 65_536
"""Persons drawn from the model, by whose pairs of rows the weights of further ones are found."""

_SEED = 20_261_128
"""Public seed of them."""

RowModel = ConstrainedModel | DifferencedModel
"""A model of one table that can draw the rest of a row under some of its attributes."""

Numbers = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Companions:
    """Weights of the parts of a row beside those of other rows of its unit, by its number of rows.

    ``partitions`` are those of attributes of rows, then of units; units of at least ``sizes[g]``
    rows are in group g. ``weights`` (groups, parts, parts of rows) are of a part of another row, or
    of the unit, and one of the row; ``within`` (groups, parts of rows, parts of rows) of two of it.
    """

    partitions: Mapping[str, Partition] = field(default_factory=dict)
    of_units: Mapping[str, Partition] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    weights: Numbers = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.float32))
    within: Numbers = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.float32))

    def weighing(self, sizes: tuple[int, ...], weights: Numbers, within: Numbers) -> Companions:
        """The same with other groups and weights."""
        return replace(self, sizes=sizes, weights=weights, within=within)

    @cached_property
    def offsets(self) -> Integers:
        """The number of the first part of each attribute, of rows and then of units."""
        partitions = (*self.partitions.values(), *self.of_units.values())
        return np.cumsum([0, *(each.size for each in partitions)])

    @property
    def of_rows(self) -> int:
        """Number of parts of all attributes of rows."""
        return int(self.offsets[len(self.partitions)])

    @property
    def parts(self) -> int:
        """Number of parts of all attributes."""
        return int(self.offsets[-1])

    def numbers(self, rows: Mapping[str, Integers]) -> Integers:
        """The numbers (..., attributes) of the parts of rows, by fine codes (...) of attributes."""
        index = (part.index(rows[name]) for name, part in self.partitions.items())
        return np.stack([i + o for i, o in zip(index, self.offsets, strict=False)], axis=-1)

    def beside(self, units: Mapping[str, Integers], number: int) -> Numbers:
        """Which parts (n, parts) are beside a first row of so many units, by their fine codes."""
        sums, offsets = self._none(number), self.offsets[len(self.partitions) :]
        for offset, (name, part) in zip(offsets, self.of_units.items(), strict=False):
            sums[np.arange(number), offset + part.index(units[name])] = 1
        return sums

    def _none(self, number: int) -> Numbers:
        return np.zeros((number, self.parts), dtype=np.float32)

    def groups(self, sizes: Integers) -> Integers:
        """The group (n,) of units of so many rows (n,)."""
        return np.maximum(np.searchsorted(self.sizes, sizes, side="right") - 1, 0)

    def sums(self, numbers: Integers) -> Numbers:
        """How often each part occurs (n, parts) in a row (n, attributes): 0 or 1."""
        sums = self._none(len(numbers))
        np.put_along_axis(sums, numbers, 1, axis=1)
        return sums

    def logs(self, candidates: Integers, sums: Numbers, sizes: Integers) -> Floats:
        """Log weights (n, k) of candidates (n, k, attributes) beside all rows so far.

        ``sums`` (n, parts) are how often parts occur in these, and in the unit.
        """
        groups = self.groups(sizes)
        fields = np.empty((len(sums), self.of_rows), dtype=np.float32)
        logs = np.zeros(candidates.shape[:2])
        for group in np.unique(groups):
            some = groups == group
            fields[some] = sums[some] @ self.weights[group]
            logs[some] = self._within(candidates[some], self.within[group])
        for column in range(candidates.shape[2]):
            logs += np.take_along_axis(fields, candidates[:, :, column], axis=1)
        return logs

    def _within(self, candidates: Integers, within: Numbers) -> Floats:
        """Log weights (n, k) of the pairs of parts of each candidate (n, k, attributes)."""
        logs, attributes = np.zeros(candidates.shape[:2]), candidates.shape[2]
        for first in range(attributes if attributes <= _MOST_WITHIN else 0):
            for second in range(first, attributes):
                logs += within[candidates[:, :, first], candidates[:, :, second]]
        return logs

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """JSON and arrays."""
        arrays: dict[str, NDArray[Any]] = {
            "companions": self.weights,
            "companions/within": self.within,
        }
        for index, part in enumerate((*self.partitions.values(), *self.of_units.values())):
            arrays |= {f"companions/{index}/starts": part.starts}
            arrays |= {f"companions/{index}/parts": part.parts}
        names = {"attributes": list(self.partitions), "of_units": list(self.of_units)}
        return {**names, "sizes": list(self.sizes)}, arrays

    @classmethod
    def restored(cls, tasks: UnitTasks, meta: Mapping[str, Any], arrays: Arrays) -> Companions:
        """Those of a state."""
        columns = [tasks.whole.domain[name] for name in meta["attributes"]]
        columns += [tasks.units.domain[name] for name in meta["of_units"]]
        partitions = {
            column.name: Partition(
                column, arrays[f"companions/{index}/starts"], arrays[f"companions/{index}/parts"]
            )
            for index, column in enumerate(columns)
        }
        return cls(
            {name: partitions[name] for name in meta["attributes"]},
            {name: partitions[name] for name in meta["of_units"]},
            tuple(meta["sizes"]),
            arrays["companions"],
            arrays["companions/within"],
        )


def chosen_by(logs: Floats, rng: np.random.Generator) -> Integers:
    """One of each line of log weights (n, k), by number; -1 where all are impossible."""
    most = np.max(logs, axis=1, keepdims=True)
    possible = most[:, 0] > -np.inf
    heights = np.cumsum(np.exp(logs - np.where(possible[:, None], most, 0.0)), axis=1)
    marks = rng.random(len(heights)) * heights[:, -1]
    choice = np.minimum((heights <= marks[:, None]).sum(1), logs.shape[1] - 1)
    return np.where(possible, choice, -1)


@dataclass(frozen=True, eq=False)
class _UnitPairs:
    """Units with their first two rows: numbers of parts (n, 2, attributes), and ``sizes`` (n,).

    ``beside`` (n, parts) are the parts of the units themselves. ``of_first`` (parts, parts) is the
    share that tables of first rows have in those of one row. ``draw`` gives candidates
    (m, k, attributes) of rows of units (m,), by number, drawn under the first row and under the
    second in turn.
    """

    rows: Integers
    beside: Numbers
    sizes: Integers
    draw: Callable[[Integers], Integers]
    of_first: Numbers

    def of(self, companions: Companions, units: Integers) -> _Tables:
        """The tables that rows of units (n,) should have: those of the first two."""
        first, second = (companions.sums(self.rows[units, row]) for row in (0, 1))
        beside, share = self.beside[units], self.of_first
        one = share * ((first + beside).T @ first)
        two = (1 - share) * ((second + beside).T @ second)
        of_rows = companions.of_rows
        between = _symmetric(first.T @ second) + _below(one + two, of_rows)
        return _Tables.of(between, one + two, of_rows).over(len(units))


@dataclass(frozen=True, eq=False)
class _Tables:
    """Shares of parts of two rows or of unit and row (parts, parts of rows), and of one row."""

    between: Numbers
    within: Numbers

    @classmethod
    def of(cls, between: Numbers, within: Numbers, of_rows: int) -> _Tables:
        """Those of all parts."""
        return cls(between[:, :of_rows], within[:of_rows, :of_rows])

    def over(self, number: float) -> _Tables:
        """The tables divided by a number."""
        return _Tables(self.between / number, self.within / number)

    def distance(self, wanted: _Tables) -> float:
        """The sum of the differences of all cells."""
        tables = ((self.between, wanted.between), (self.within, wanted.within))
        return float(sum(np.abs(one - two).sum() for one, two in tables))

    def ratios(self, drawn: _Tables) -> _Tables:
        """The logarithms of the ratios of these tables to drawn ones."""
        tables = ((self.between, drawn.between), (self.within, drawn.within))
        return _Tables(*(np.log((one + _RIDGE) / (two + _RIDGE)) for one, two in tables))

    def with_rows(self, of_rows: int, factor: float) -> _Tables:
        """The same with those of two rows times a factor."""
        rows, units = self.between[:of_rows], self.between[of_rows:]
        return replace(self, between=np.concatenate([rows * factor, units]))

    def moved(self, by: _Tables, rate: float) -> _Tables:
        """These numbers and some times others."""
        return _Tables(
            (self.between + rate * by.between).astype(np.float32),
            (self.within + rate * by.within).astype(np.float32),
        )


def _found_companions(
    plain: Companions, pairs: _UnitPairs, data_rows: int, rng: np.random.Generator
) -> Companions:
    """The weights with which rows of a unit have the tables of first rows, and of first two.

    Units of sizes of which there are too few share the weights of smaller ones.
    """
    sizes = _sizes(pairs.sizes)
    groups = replace(plain, sizes=sizes).groups(pairs.sizes)
    rows = min(_PILOT_ROWS, _PILOT_TIMES * data_rows // len(sizes))
    weighed = [
        _found(plain, pairs, np.flatnonzero(groups == group), rows, rng)
        for group in range(len(sizes))
    ]
    between, within = (
        np.stack([getattr(each, name) for each in weighed]) for name in ("between", "within")
    )
    return plain.weighing(sizes, between, within)


def _sizes(sizes: Integers) -> tuple[int, ...]:
    """The least number of rows of each group: wider and wider ones, each of enough units."""
    chosen, size = [FURTHER], FURTHER
    while size < int(sizes.max(initial=0)):
        size = max(size + 1, round(_WIDER * size))
        above = int((sizes >= size).sum())
        if min(above, int((sizes >= chosen[-1]).sum()) - above) >= _LEAST_UNITS:
            chosen.append(size)
    return tuple(chosen)


def _found(
    plain: Companions, pairs: _UnitPairs, units: Integers, rows: int, rng: np.random.Generator
) -> _Tables:
    """The weights of one group, by its units (n,), of which about so many rows are drawn."""
    wanted = pairs.of(plain, units)
    mean = float(pairs.sizes[units].mean())  # a row is weighed beside about half as many
    drawn = units[: max(round(rows / mean), 1)]
    pilot, nothing = _Pilot.of(pairs, drawn), wanted.over(np.inf)
    rate, weights, step = 1.0, nothing, nothing
    nearest, least = weights, np.inf
    for _ in range(_STEPS):
        weighed = plain.weighing((0,), weights.between[None], weights.within[None])
        tables = pilot.tables(weighed, rng)
        distance = tables.distance(wanted)
        if distance < least:
            nearest, least = weights, distance
        elif distance > _FARTHER * least:
            rate, weights, step = rate / 2, nearest, nothing
            continue
        each = rate / max(len(plain.partitions) + len(plain.of_units) / 2, 1)
        ratios = wanted.ratios(tables).with_rows(plain.of_rows, FURTHER / mean)
        step = nothing.moved(step, _MOMENTUM).moved(ratios, each)
        weights = weights.moved(step, 1.0)
    return nearest


def _below(table: Numbers, row: int) -> Numbers:
    """A table (parts, parts) with nothing in its first rows."""
    return np.concatenate([np.zeros_like(table[:row]), table[row:]])


def _of_first(tasks: UnitTasks, model: RowModel, plain: Companions) -> Numbers:
    """What share tables of first rows have in those of one row (parts, parts).

    Half, but where noisy counts hold a joint table of the first row alone, or of the second: the
    model knows no more of the other than what follows from all of its tables.
    """
    counts = counts_of(model)
    tables = [{*map(tasks.origin, table.names)} for table in counts.tables] if counts else []
    names = (*plain.partitions, *plain.of_units)

    def share(one: str, two: str) -> float:
        pairs = [{one, two}, {tasks.second.get(one, one), tasks.second.get(two, two)}]
        first, second = (any(pair <= table for table in tables) for pair in pairs)
        return 0.5 if first == second else float(first)

    shares = np.array([[share(one, two) for two in names] for one in names], dtype=np.float32)
    widths = np.diff(plain.offsets)
    return np.repeat(np.repeat(shares, widths, axis=0), widths, axis=1)


def _symmetric(table: Numbers) -> Numbers:
    """The mean of a table and its transpose."""
    return np.asarray((table + table.T) / 2)


@dataclass(frozen=True, eq=False)
class _Pilot:
    """Units whose further rows are drawn again and again, from the same candidates.

    ``candidates[i]`` (m, k, attributes) are those of the row after the first i + 2, of the units
    ``wanting[i]`` (m,); all have ``rows`` (n, 2, attributes) and parts ``beside`` (n, parts).
    """

    rows: Integers
    beside: Numbers
    sizes: Integers
    wanting: tuple[Integers, ...]
    candidates: tuple[Integers, ...]

    @classmethod
    def of(cls, pairs: _UnitPairs, units: Integers) -> _Pilot:
        """The units by number, with candidates of all their further rows."""
        sizes = pairs.sizes[units]
        wanting = tuple(
            np.flatnonzero(sizes > rank) for rank in range(2, int(sizes.max(initial=0)))
        )
        candidates = tuple(pairs.draw(units[some]) for some in wanting)
        return cls(pairs.rows[units], pairs.beside[units], sizes, wanting, candidates)

    def tables(self, companions: Companions, rng: np.random.Generator) -> _Tables:
        """The shares of parts of two rows of a unit, of one row, and of it with its unit.

        Units weigh alike.
        """
        firsts = [companions.sums(self.rows[:, row]) for row in (0, 1)]
        sums = self.beside + firsts[0] + firsts[1]
        once = (1 / self.sizes).astype(np.float32)
        twice = (once / (self.sizes - 1)).astype(np.float32)
        alone = sum((first * twice[:, None]).T @ first for first in firsts)
        within = sum((first * once[:, None]).T @ first for first in firsts)
        for wanting, candidates in zip(self.wanting, self.candidates, strict=True):
            logs = companions.logs(candidates, sums[wanting], self.sizes[wanting])
            choice = chosen_by(logs, rng)
            row = companions.sums(candidates[np.arange(len(choice)), choice])
            alone = alone + (row * twice[wanting, None]).T @ row
            within = within + (row * once[wanting, None]).T @ row
            sums[wanting] += row
        rows = sums - self.beside
        pairs = _symmetric((rows * twice[:, None]).T @ rows - alone)
        beside = (self.beside * once[:, None]).T @ rows
        return _Tables.of(pairs + beside, np.asarray(within), companions.of_rows).over(
            len(self.sizes)
        )


@dataclass(frozen=True)
class _Present:
    """No value of a second row is missing that no row of the data may lack.

    Implements :class:`cloister.models.sampling.ancestral.ImportanceWeight`.
    """

    chain: ConstrainedChain
    names: frozenset[str]

    def factors(self, name: str) -> Floats | None:
        """Factors (levels,) on the probabilities of an attribute."""
        if name not in self.names:
            return None
        factors = np.ones(self.chain.bins[name].size)
        factors[self.chain.bins[name].levels.null] = 0.0
        return factors

    def quantiles(self, name: str, levels: Integers, rng: np.random.Generator) -> None:  # noqa: ARG002
        """None: values are even inside levels."""
        return


Drawn = tuple[Table, Booleans]
"""Rows, and which of them (n,) have no dead end."""


@dataclass(frozen=True)
class RowDraws:
    """Draws rows of persons under their attributes, and under another row of theirs.

    With ``flatness`` from flatter probabilities of the attributes that rules are on.
    """

    tasks: UnitTasks
    model: RowModel
    flatness: float = 0.0

    def first(self, units: Mapping[str, Integers], rng: np.random.Generator) -> Drawn:
        """A first row (n,) of persons with some codes (n,)."""
        names = self.tasks.of_rows
        drawn, alive = self._drawn(units, self._beside(names), rng)
        known, present = self.tasks.present({name: drawn.codes[name] for name in names}, names)
        return self._row({**units, **known}), alive & present

    def further(self, units: Mapping[str, Integers], rng: np.random.Generator) -> Drawn:
        """Another row (n,) of persons with some codes (n,), among them those of a first row.

        In an order, one past the last value is a dead end. The last draws, which are from flatter
        probabilities, bring it back inside.
        """
        inner, alive = self._inner(units, self._beside(()), rng)
        drawn, gap = self.model.finish(inner), self.tasks.gap
        if gap is not None and not self.flatness:
            alive = alive & (self.model.unfinished(drawn).codes[gap] == inner.codes[gap])
        shared = {name: units[name] for name in self.tasks.shared}
        rows, completed = self.completed(shared | dict(self.tasks.second_rows(drawn)), rng)
        return rows, alive & completed

    def completed(self, codes: Mapping[str, Integers], rng: np.random.Generator) -> Drawn:
        """Rows of some codes (n,) with those attributes that first rows alone have."""
        known, present = self.tasks.present(codes, self.tasks.second)
        if not self.tasks.fixed:
            return self._row(known), present
        names = self.tasks.fixed
        drawn, alive = self._drawn(known, self._beside(names), rng)
        rest, complete = self.tasks.present({name: drawn.codes[name] for name in names}, names)
        return self._row(known | rest), present & alive & complete

    def _row(self, codes: Mapping[str, Integers]) -> Table:
        return Table.completed(self.tasks.whole.domain, codes, len(codes[self.tasks.counted]))

    def _drawn(
        self, units: Mapping[str, Integers], sampler: GivenSampler, rng: np.random.Generator
    ) -> Drawn:
        """Rows of the table of persons, of which some codes (n,) are given."""
        inner, alive = self._inner(units, sampler, rng)
        return self.model.finish(inner), alive

    def _inner(
        self, units: Mapping[str, Integers], sampler: GivenSampler, rng: np.random.Generator
    ) -> Drawn:
        """The same as the model draws them; see `DifferencedModel.finish`."""
        rows = len(units[self.tasks.counted])
        return self._of_units(units, rows, sampler, rng, self._present)

    def _of_units(
        self,
        units: Mapping[str, Integers],
        rows: int,
        sampler: GivenSampler,
        rng: np.random.Generator,
        weight: ImportanceWeight | None,
    ) -> Drawn:
        known = Table.completed(self.tasks.units.domain, units, rows)
        return drawn_given(self.model, known, sampler, rng, weight)

    @cached_property
    def _chain(self) -> ConstrainedChain:
        return _chain_of(self.model, self.flatness)

    @cached_property
    def _present(self) -> _Present:
        chain, whole = self.model.constraint_sampler.chain, self.tasks.whole.domain
        lacking = {second: name for name, second in self.tasks.second.items()}
        lacking |= {} if self.tasks.least else {name: name for name in self.tasks.of_rows}
        needed = {
            name
            for name in chain.sequence
            if (origin := lacking.get(self.tasks.origin(name))) is not None
            and whole[origin].null_code is None
        }
        return _Present(chain, frozenset(needed))

    def _beside(self, drawn: tuple[str, ...]) -> GivenSampler:
        """Draws some attributes and second rows, given units and the rest of first rows."""
        known = {*self.tasks.shared, *self.tasks.of_rows} - {*drawn}
        given = [name for name in self._chain.sequence if self.tasks.origin(name) in known]
        return GivenSampler(self._chain, tuple(given))


def rest_of_rows(
    task: Task, model: RowModel, known: Table, flatness: float, rng: np.random.Generator
) -> Drawn:
    """Rows (n,) of a task of which some attributes are known, by a model of the rest."""
    chain = _chain_of(model, flatness)
    moved = {each.name: each.moved.name for each in differences_of(task)}
    given = (name for name in chain.sequence if moved.get(name, name) in known.domain)
    whole = Table.completed(task.domain, known.stored, known.rows)
    inner, alive = drawn_given(model, whole, GivenSampler(chain, tuple(given)), rng, None)
    return model.finish(inner), alive


def _chain_of(model: RowModel, flatness: float) -> ConstrainedChain:
    """The chain by which a model draws rows, of flatter probabilities where rules are."""
    sampler = model.constraint_sampler
    return flatten_chain(sampler.chain, flatness, sampler.ruled) if flatness else sampler.chain


def drawn_given(
    model: RowModel,
    whole: Table,
    sampler: GivenSampler,
    rng: np.random.Generator,
    weight: ImportanceWeight | None,
) -> Drawn:
    """Rows as the model draws them, given what the sampler does not draw."""
    known = model.unfinished(whole)
    batch = sampler.draw({name: known.codes[name] for name in sampler.given}, rng, weight)
    inner = Table.completed(model.constraint_sampler.domain, batch.codes, whole.rows)
    return inner, batch.alive


def companions_of(tasks: UnitTasks, model: RowModel) -> Companions:
    """What goes with what in rows of one person, by the pairs of rows that a model gives."""
    source = SamplingSource(_SEED)
    if tasks.most_rows < FURTHER or not tasks.second or tasks.order:
        return Companions()
    units = model.sample(_POOL, source.spawn(1)[0])
    several = tasks.counts(units) >= FURTHER
    for row in (units.codes, tasks.second_rows(units)):
        several &= tasks.present(row, tasks.second)[1]
    units, draws = units.take(several), RowDraws(tasks, model)
    if units.rows < 2:
        return Companions()
    rows = [{name: units.codes[name] for name in tasks.second}, tasks.second_rows(units)]
    partitions = {
        name: parts_by(tasks.whole.domain[name], np.concatenate([row[name] for row in rows]))
        for name in tasks.second
    }
    of_units = {
        name: parts_by(tasks.units.domain[name], units.codes[name].astype(np.int64))
        for name in tasks.given
    }
    plain = Companions(partitions, of_units)

    def draw(wanting: Integers) -> Integers:
        some = np.repeat(wanting, CANDIDATES)
        first = np.tile(np.arange(CANDIDATES) % 2 == 0, len(wanting))
        codes = {name: units.codes[name][some] for name in (*tasks.given, tasks.counted)}
        codes |= {name: units.codes[name][some] for name in tasks.fixed}
        codes |= {n: np.where(first, rows[0][n][some], rows[1][n][some]) for n in tasks.second}
        drawn, _ = draws.further(codes, source.generator)
        return plain.numbers(drawn.codes).reshape(len(wanting), CANDIDATES, -1)

    numbers = np.stack([plain.numbers(row) for row in rows], axis=1)
    beside = plain.beside(units.codes, units.rows)
    shares = _of_first(tasks, model, plain)
    pairs = _UnitPairs(numbers, beside, tasks.counts(units), draw, shares)
    return _found_companions(plain, pairs, tasks.whole.data_rows, source.generator)
