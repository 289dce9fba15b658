"""Further rows of a unit: which go with all rows before, by released pairs alone.

A model gives candidates, each under one of the first two rows of a unit. They are weighed by how
often their parts occur beside those of all rows so far: a row r has a weight of exp(sum of W[i, j]
over the parts i of r and j of each of these). The weights W are found such that two rows of one
unit of several have the joint tables of the first two rows, which the model has from the data:
drawn from it and compared, W moves by the logarithms of their ratios, as in iterative proportional
fitting of a pairwise Markov network, in which W starts at nothing.

Privacy: post-processing of a fitted model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.constrained import ConstrainedModel
from cloister.models.protocol import Arrays
from cloister.models.relational.profiles import parts_by
from cloister.models.sampling.ancestral import ImportanceWeight
from cloister.models.sampling.chain import ConstrainedChain, flatten_chain
from cloister.models.sampling.conditions import GivenSampler
from cloister.models.transforms.differenced import DifferencedModel
from cloister.models.transforms.unit_tables import UnitTasks
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import Partition

CANDIDATES = 16
"""Rows of which one is chosen as a further row of a unit."""

_STEPS = 30
"""Steps in which weights are found: households are as near as after sixty."""

_MOMENTUM = 0.5
"""Part of a step that the next one goes on with: without, households of four went to and fro."""

_FARTHER = 1.5
"""Distance, over the least so far, beyond which weights go back to those and steps are halved."""

_RIDGE = 2e-4
"""Added to shares of pairs, so that of rare ones, which noise and drawing decide, ratios are 1."""

_LEAST_UNITS = 400
"""Units of so many rows by which weights of their own are found."""

FURTHER = 3
"""Rows from which on a unit has further ones."""

_WIDER = 1.5
"""How much larger the numbers of rows of a group are than those of the one before."""

_PILOT_ROWS = 12_000
"""Rows of the units of a group that are drawn in each step, about."""

_POOL = 65_536
"""Persons drawn from the model, by whose pairs of rows the weights of further ones are found."""

_SEED = 20_261_128
"""Public seed of them."""

RowModel = ConstrainedModel | DifferencedModel
"""A model of one table that can draw the rest of a row under some of its attributes."""

Numbers = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Companions:
    """Weights (groups, parts, parts) of parts of two rows of one unit, by its number of rows.

    ``partitions`` are those of attributes; units of at least ``sizes[g]`` rows are in group g.
    """

    partitions: Mapping[str, Partition] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    weights: Numbers = field(default_factory=lambda: np.zeros((0, 0, 0), dtype=np.float32))

    @cached_property
    def offsets(self) -> Integers:
        """The number of the first part of each attribute."""
        return np.cumsum([0, *(each.size for each in self.partitions.values())])

    @property
    def parts(self) -> int:
        """Number of parts of all attributes."""
        return int(self.offsets[-1])

    def numbers(self, rows: Mapping[str, Integers]) -> Integers:
        """The numbers (..., attributes) of the parts of rows, by fine codes (...) of attributes."""
        index = (part.index(rows[name]) for name, part in self.partitions.items())
        return np.stack([i + o for i, o in zip(index, self.offsets, strict=False)], axis=-1)

    def groups(self, sizes: Integers) -> Integers:
        """The group (n,) of units of so many rows (n,)."""
        return np.maximum(np.searchsorted(self.sizes, sizes, side="right") - 1, 0)

    def sums(self, numbers: Integers) -> Numbers:
        """How often each part occurs (n, parts) in a row (n, attributes): 0 or 1."""
        sums = np.zeros((len(numbers), self.parts), dtype=np.float32)
        np.put_along_axis(sums, numbers, 1, axis=1)
        return sums

    def logs(self, candidates: Integers, sums: Numbers, sizes: Integers) -> Floats:
        """Log weights (n, k) of candidates (n, k, attributes) beside all rows so far.

        ``sums`` (n, parts) are how often parts occur in these.
        """
        groups, fields = self.groups(sizes), np.empty_like(sums)
        for group in np.unique(groups):
            fields[groups == group] = sums[groups == group] @ self.weights[group]
        logs = np.zeros(candidates.shape[:2])
        for column in range(candidates.shape[2]):
            logs += np.take_along_axis(fields, candidates[:, :, column], axis=1)
        return logs

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """JSON and arrays."""
        arrays: dict[str, NDArray[Any]] = {"companions": self.weights}
        for index, part in enumerate(self.partitions.values()):
            arrays |= {f"companions/{index}/starts": part.starts}
            arrays |= {f"companions/{index}/parts": part.parts}
        return {"attributes": list(self.partitions), "sizes": list(self.sizes)}, arrays

    @classmethod
    def restored(cls, domain: Domain, meta: Mapping[str, Any], arrays: Arrays) -> Companions:
        """Those of a state."""
        partitions = {
            name: Partition(
                domain[name],
                arrays[f"companions/{index}/starts"],
                arrays[f"companions/{index}/parts"],
            )
            for index, name in enumerate(meta["attributes"])
        }
        return cls(partitions, tuple(meta["sizes"]), arrays["companions"])


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

    ``draw`` gives candidates (m, k, attributes) of rows of units (m,), by number, drawn under the
    first row and under the second in turn.
    """

    rows: Integers
    sizes: Integers
    draw: Callable[[Integers], Integers]


def _found_companions(
    partitions: Mapping[str, Partition], pairs: _UnitPairs, rng: np.random.Generator
) -> Companions:
    """The weights with which two rows of a unit have the joint tables of its first two.

    Units of sizes of which there are too few share the weights of smaller ones.
    """
    sizes = _sizes(pairs.sizes)
    plain = Companions(partitions, sizes)
    shape = (len(sizes), plain.parts, plain.parts)
    plain = Companions(partitions, sizes, np.zeros(shape, dtype=np.float32))
    groups, weights = plain.groups(pairs.sizes), plain.weights.copy()
    for group in range(len(sizes)):
        units = np.flatnonzero(groups == group)
        weights[group] = _found(plain, pairs, units, rng)
    return Companions(partitions, sizes, weights)


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
    plain: Companions, pairs: _UnitPairs, units: Integers, rng: np.random.Generator
) -> Numbers:
    """The weights (parts, parts) of one group, by its units (n,)."""
    firsts = [plain.sums(pairs.rows[units, row]) for row in (0, 1)]
    wanted = _symmetric(firsts[0].T @ firsts[1]) / len(units)
    drawn = units[: max(_PILOT_ROWS // max(int(pairs.sizes[units].mean()), 1), 1)]
    pilot = _Pilot.of(pairs, drawn)
    rate, weights, step = 1.0, np.zeros_like(wanted), np.zeros_like(wanted)
    nearest, least = weights, np.inf
    for _ in range(_STEPS):
        shares = pilot.shares(Companions(plain.partitions, (0,), weights[None]), rng)
        distance = float(np.abs(shares - wanted).sum())
        if distance < least:
            nearest, least = weights, distance
        elif distance > _FARTHER * least:
            rate, weights, step = rate / 2, nearest, np.zeros_like(wanted)
            continue
        wrong = np.log((wanted + _RIDGE) / (shares + _RIDGE))
        step = _MOMENTUM * step + rate / max(len(plain.partitions), 1) * wrong
        weights = (weights + step).astype(np.float32)
    return nearest


def _symmetric(table: Numbers) -> Numbers:
    """The mean of a table and its transpose."""
    return np.asarray((table + table.T) / 2)


@dataclass(frozen=True, eq=False)
class _Pilot:
    """Units whose further rows are drawn again and again, from the same candidates.

    ``candidates[i]`` (m, k, attributes) are those of the row after the first i + 2, of the units
    ``wanting[i]`` (m,); all have ``rows`` (n, 2, attributes).
    """

    rows: Integers
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
        return cls(pairs.rows[units], sizes, wanting, candidates)

    def shares(self, companions: Companions, rng: np.random.Generator) -> Numbers:
        """How often two parts (parts, parts) are those of two rows of a unit; units weigh alike."""
        firsts = [companions.sums(self.rows[:, row]) for row in (0, 1)]
        sums = firsts[0] + firsts[1]
        weights = (1 / (self.sizes * (self.sizes - 1))).astype(np.float32)
        alone = sum((first * weights[:, None]).T @ first for first in firsts)
        for wanting, candidates in zip(self.wanting, self.candidates, strict=True):
            logs = companions.logs(candidates, sums[wanting], self.sizes[wanting])
            choice = chosen_by(logs, rng)
            row = companions.sums(candidates[np.arange(len(choice)), choice])
            alone = alone + (row * weights[wanting, None]).T @ row
            sums[wanting] += row
        return _symmetric(((sums * weights[:, None]).T @ sums - alone) / len(self.sizes))


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

    def units(self, known: Table, rng: np.random.Generator) -> Drawn:
        """Units (n,) of which some attributes are known, by a model of the rest."""
        given = [name for name in self._chain.sequence if self.tasks.origin(name) in known.domain]
        sampler = GivenSampler(self._chain, tuple(given))
        return self._of_units(known.stored, known.rows, sampler, rng, None)

    def first(self, units: Mapping[str, Integers], rng: np.random.Generator) -> Drawn:
        """A first row (n,) of persons with some codes (n,)."""
        drawn, alive = self._drawn(units, self._beside(self.tasks.of_rows), rng)
        return self._row({**units, **{n: drawn.codes[n] for n in self.tasks.of_rows}}), alive

    def further(self, units: Mapping[str, Integers], rng: np.random.Generator) -> Drawn:
        """Another row (n,) of persons with some codes (n,), among them those of a first row."""
        drawn, alive = self._drawn(units, self._beside(()), rng)
        shared = {name: units[name] for name in (*self.tasks.given, self.tasks.counted)}
        rows, completed = self.completed(shared | dict(self.tasks.second_rows(drawn)), rng)
        return rows, alive & completed

    def completed(self, codes: Mapping[str, Integers], rng: np.random.Generator) -> Drawn:
        """Rows of some codes (n,) with those attributes that first rows alone have."""
        known, present = self.tasks.present(codes, self.tasks.second)
        if not self.tasks.fixed:
            return self._row(known), present
        drawn, alive = self._drawn(known, self._beside(self.tasks.fixed), rng)
        known |= {name: drawn.codes[name] for name in self.tasks.fixed}
        return self._row(known), present & alive

    def _row(self, codes: Mapping[str, Integers]) -> Table:
        return Table.completed(self.tasks.whole.domain, codes, len(codes[self.tasks.counted]))

    def _drawn(
        self, units: Mapping[str, Integers], sampler: GivenSampler, rng: np.random.Generator
    ) -> Drawn:
        """Rows of the table of persons, of which some codes (n,) are given."""
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
        known = self.model.unfinished(Table.completed(self.tasks.units.domain, units, rows))
        codes = {name: known.codes[name] for name in sampler.given}
        batch = sampler.draw(codes, rng, weight)
        drawn = Table.completed(self.model.constraint_sampler.domain, batch.codes, rows)
        return self.model.finish(drawn), batch.alive

    @cached_property
    def _chain(self) -> ConstrainedChain:
        sampler = self.model.constraint_sampler
        if not self.flatness:
            return sampler.chain
        return flatten_chain(sampler.chain, self.flatness, sampler.ruled)

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
        known = {*self.tasks.units.given, *self.tasks.of_rows} - {*drawn}
        given = [name for name in self._chain.sequence if self.tasks.origin(name) in known]
        return GivenSampler(self._chain, tuple(given))


def companions_of(tasks: UnitTasks, model: RowModel) -> Companions:
    """What goes with what in rows of one person, by the pairs of rows that a model gives."""
    source = SamplingSource(_SEED)
    if tasks.most_rows < FURTHER or not tasks.second:
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
    plain = Companions(partitions)

    def draw(wanting: Integers) -> Integers:
        some = np.repeat(wanting, CANDIDATES)
        first = np.tile(np.arange(CANDIDATES) % 2 == 0, len(wanting))
        codes = {name: units.codes[name][some] for name in (*tasks.given, tasks.counted)}
        codes |= {name: units.codes[name][some] for name in tasks.fixed}
        codes |= {n: np.where(first, rows[0][n][some], rows[1][n][some]) for n in tasks.second}
        drawn, _ = draws.further(codes, source.generator)
        return plain.numbers(drawn.codes).reshape(len(wanting), CANDIDATES, -1)

    numbers = np.stack([plain.numbers(row) for row in rows], axis=1)
    return _found_companions(
        partitions, _UnitPairs(numbers, tasks.counts(units), draw), source.generator
    )
