"""Tables drawn whole: made to satisfy the hard constraints, or balanced.

*Proposals.* A method proposes rows, chunk by chunk, that are dependent on each other (linked, or
with exact histograms). Those that break a rule are left out, and replaced by rows drawn one by one.

*Balanced samples* are, of more rows than wanted, those whose joint tables are nearest to all rows'.

A plain draw adds its own sampling error to the error of the model. Here several times the rows are
drawn, and rows are exchanged one for one while that brings the tables of all pairs of attributes
nearer to those of the whole pool. Post-processing of a released model.

Source: the aim is that of balanced sampling, Deville and Tillé, "Efficient balanced sampling: the
cube method" (2004); the exchanges are a local search.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numba
import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Array, Booleans, Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.core.costs import MOST_PAIRS, OVERSAMPLING
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler, Where
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table

_TRIES = 16
"""Other rows that each row may be exchanged for; the first that improves the tables is taken."""

MOST_PAIR_CELLS = 4_000
"""Most cells of a compared table."""

_SEED = 20_040_401
"""Public seed of the choice of pairs where there are more, the same in every draw."""

_PairCells = NDArray[np.int32]

Pair = tuple[int, int]
"""The indices of two attributes."""


@dataclass(frozen=True)
class BalancedSampler(Sampler):
    """Draws ``OVERSAMPLING`` times the rows from a sampler and keeps a part.

    The part is balanced in the levels of ``bins``.
    """

    inner: Sampler
    bins: Mapping[str, Histogram]

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.inner.domain

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """Exactly ``rows`` rows; SampleError if they cannot be drawn."""
        pool = self.inner.draw(OVERSAMPLING * rows, rng, given).narrow()
        levels = {
            n: histogram.index(pool.stored[n]).astype(np.int32)
            for n, histogram in self.bins.items()
        }
        sizes = [histogram.size for histogram in self.bins.values()]
        return pool.take(choose_balanced([*levels.values()], sizes, rows, rng.generator))


@dataclass(frozen=True, eq=False)
class Balance:
    """The tables of pairs of attributes that rows should have: ``shares`` of all their cells."""

    bins: Mapping[str, Histogram]
    pairs: tuple[Pair, ...]
    shares: Floats

    @classmethod
    def of(cls, pool: Table, bins: Mapping[str, Histogram], given: Iterable[str]) -> Balance:
        """Those of a pool, but for pairs of attributes that rows are drawn under."""
        names, apart = [*bins], {*given}
        pairs = choose_pairs([each.size for each in bins.values()])
        drawn = tuple((a, b) for a, b in pairs if not {names[a], names[b]} <= apart)
        plain = cls(bins, drawn, np.zeros(0))
        return replace(plain, shares=plain.counts(pool) / pool.rows)

    def cells(self, rows: Table) -> _PairCells:
        """The cell of each row in each table (rows, tables)."""
        levels = [each.index(rows.stored[name]) for name, each in self.bins.items()]
        return _cells(levels, self._sizes, self.pairs)[0]

    def counts(self, rows: Table) -> Floats:
        """The rows in each cell of all tables (cells,)."""
        number = sum(self._sizes[a] * self._sizes[b] for a, b in self.pairs)
        return np.bincount(self.cells(rows).ravel(), minlength=number).astype(np.float64)

    def choose(
        self, candidates: Table, usable: Booleans, before: Floats, loads: Floats
    ) -> Integers:
        """One candidate (n,) of each row, by number, of the usable ones (n, d).

        There are rows ``before`` (cells,), and each of these stands for ``loads`` (n,) rows.
        """
        if not self.pairs:
            return usable.argmax(axis=1)
        wanted = self.shares * (before.sum() / len(self.pairs) + loads.sum())
        weights = 1.0 / np.maximum(wanted, 0.5)
        return choose_among(self.cells(candidates), usable, before - wanted, weights, loads)

    @property
    def _sizes(self) -> list[int]:
        return [each.size for each in self.bins.values()]


def choose_balanced(
    levels: Sequence[Array],
    sizes: Sequence[int],
    wanted: int,
    rng: np.random.Generator,
    loads: Floats | None = None,
    sweeps: int = 1,
) -> Integers:
    """Numbers (wanted,) of rows whose tables are near the pool's: the first ones, some exchanged.

    Args:
        levels: one column (pool,) for each attribute.
        sizes: the number of levels of each.
        loads: the rows (wanted,) that each of those wanted stands for; one each by default.
        sweeps: how often each is looked at.
    """
    cells, count = _cells(levels, sizes, choose_pairs(sizes))
    pool, loads = len(levels[0]), np.ones(wanted) if loads is None else loads
    expected = np.bincount(cells.ravel(), minlength=count) * (loads.sum() / pool)
    there = np.repeat(loads, cells.shape[1])
    excess = np.bincount(cells[:wanted].ravel(), there, minlength=count) - expected
    chosen, spare = np.arange(wanted), wanted + rng.permutation(pool - wanted)
    for _ in range(sweeps if cells.shape[1] and len(spare) else 0):
        order, weights = rng.permutation(wanted), 1.0 / np.maximum(expected, 0.5)
        _exchange(cells, excess, weights, loads, chosen, spare, order, _TRIES)
    return chosen


def choose_among(
    cells: _PairCells, usable: Booleans, excess: Floats, weights: Floats, loads: Floats
) -> Integers:
    """One candidate (n,) of each row by number, such that tables of pairs are near others.

    Args:
        cells: those (n * d, pairs) of the d candidates of each row together, see `_cells`.
        usable: which candidates (n, d) may be chosen; the first one where there are none.
        excess: the rows (cells,) there are already, less those wanted with these.
        weights: those (cells,) of its squares.
        loads: the rows (n,) that each stands for.
    """
    choice = usable.argmax(axis=1)
    each = cells.reshape(*usable.shape, -1)
    drawn = each[np.arange(len(choice)), choice]
    there = np.repeat(loads, cells.shape[1])
    whole = excess + np.bincount(drawn.ravel(), there, minlength=len(excess))
    _choose(each, usable, whole, weights, loads, choice)
    return choice


def _cells(
    levels: Sequence[Array], sizes: Sequence[int], pairs: Sequence[Pair]
) -> tuple[_PairCells, int]:
    """The cell of each row in the table of each pair (rows, pairs), and the number of all cells.

    Cells are numbered over all tables.
    """
    begins = np.cumsum([0, *(sizes[a] * sizes[b] for a, b in pairs)]).tolist()
    cells = np.empty((len(levels[0]), len(pairs)), dtype=np.int32)
    for column, (a, b) in enumerate(pairs):
        cells[:, column] = begins[column] + levels[a] * sizes[b] + levels[b]
    return cells, begins[-1]


def choose_pairs(sizes: Sequence[int]) -> list[Pair]:
    """The pairs of attributes whose tables are compared: small ones, an even choice if many."""
    pairs = [
        (a, b)
        for a, b in combinations(range(len(sizes)), 2)
        if sizes[a] * sizes[b] <= MOST_PAIR_CELLS
    ]
    if len(pairs) <= MOST_PAIRS:
        return pairs
    chosen = np.random.default_rng(_SEED).choice(len(pairs), MOST_PAIRS, replace=False)
    return [pairs[index] for index in np.sort(chosen)]


@numba.njit(cache=True)
def _exchange(
    cells: _PairCells,
    excess: Floats,
    weights: Floats,
    loads: Floats,
    chosen: Integers,
    spare: Integers,
    order: Integers,
    tries: int,
) -> None:
    """Exchange each chosen row, in order, for the first of some that lowers the sum of squares.

    The squares are those of ``excess`` (cells,), times ``weights`` (cells,). A chosen row counts
    as often as its place ``loads`` (chosen,).
    """
    candidate = 0
    for number in order:
        leaving, load = cells[chosen[number]], loads[number]
        without = _leaving(leaving, excess, weights, load)
        for _ in range(tries):
            candidate = (candidate + 1) % len(spare)
            coming = cells[spare[candidate]]
            if without + _coming(coming, leaving, excess, weights, load) < 0.0:
                excess[leaving] -= load
                excess[coming] += load
                chosen[number], spare[candidate] = spare[candidate], chosen[number]
                break


@numba.njit(cache=True)
def _choose(
    cells: _PairCells,
    usable: Booleans,
    excess: Floats,
    weights: Floats,
    loads: Floats,
    choice: Integers,
) -> None:
    """Give each row, in order, the other candidates that lower the sum of squares."""
    for row in range(len(choice)):
        for candidate in range(usable.shape[1]):
            leaving, coming = cells[row, choice[row]], cells[row, candidate]
            if usable[row, candidate] and candidate != choice[row]:
                load = loads[row]
                without = _leaving(leaving, excess, weights, load)
                if without + _coming(coming, leaving, excess, weights, load) < 0.0:
                    excess[leaving] -= load
                    excess[coming] += load
                    choice[row] = candidate


@numba.njit(cache=True)
def _leaving(row: _PairCells, excess: Floats, weights: Floats, load: float) -> float:
    """The change of the weighted sum of squares when a row that counts ``load`` times leaves."""
    gain = 0.0
    for cell in row:
        gain += weights[cell] * load * (load - 2.0 * excess[cell])
    return gain


@numba.njit(cache=True)
def _coming(
    row: _PairCells, left: _PairCells, excess: Floats, weights: Floats, load: float
) -> float:
    """The change of the weighted sum of squares when a row comes after another has left."""
    gain = 0.0
    for table in range(len(row)):
        cell = row[table]
        fewer = load if cell == left[table] else 0.0
        gain += weights[cell] * load * (load + 2.0 * (excess[cell] - fewer))
    return gain


@dataclass(frozen=True)
class ProposingSampler(Sampler):
    """Draws tables that a method proposes whole.

    Under conditions, and in place of rows that break a rule, ``plain`` draws row by row.
    """

    plain: ConstraintSampler

    @abstractmethod
    def follower(self, rows: int, rng: np.random.Generator) -> AncestralSampler:
        """What draws ``rows`` proposed rows, wherever the feasible sets allow them."""

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.plain.domain

    @property
    def remembers(self) -> bool:
        """Whether rows depend on those before them: where a rule on pairs has no feasible set."""
        return self.plain.remembers

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> Sampler:  # noqa: ARG002
        """What draws the chunks: ``plain`` under a condition."""
        return self.plain if where else self

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """Exactly ``rows`` rows, keys left unset; SampleError if they cannot be drawn."""
        proposing, replacing = rng.spawn(2)
        batch = self.follower(rows, proposing.generator).draw(rows, proposing.generator)
        proposed = self.plain.repaired(batch, proposing.generator).take(batch.alive)
        fitting = proposed.take(self.plain.feasible(proposed))
        accepted = self.plain.accepted(given.before, whole=True)
        accepted_rows = fitting.take(accepted.admit(fitting, proposing.generator))
        given = replace(given, before=[*given.before, accepted_rows])
        return Table.concatenate(
            [accepted_rows, self.plain.draw(rows - accepted_rows.rows, replacing, given)]
        )
