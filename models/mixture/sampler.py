"""Drawing rows of a mixture with low variance, fewer of those that the fit puts far off.

Component sizes, the levels inside a component and the values inside a bin are drawn by systematic
sampling, so that every marginal of the rows is nearer to the model's than with independent draws.
Each row alone has the model's distribution.

*Numbers that nearly follow each other.* A mixture spreads a nearly functional pair: a part of its
mass lies in cells where a measured table has next to nothing. Each of these cells holds less than
the noise, all of them together far more. So the cells of a measured table are put into groups by
their lift, the mass that the model expects over that of independent numbers, and each group's mass
is moved to the measured one as far as noise does not explain the difference. Rows are thinned by
what that changes. Post-processing.

Sources: James, Stein, "Estimation with quadratic loss" (1961), for how far; Deming, Stephan, "On a
least squares adjustment of a sampled frequency table" (1940), for the histograms, which stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.mixture.products import DependentAttribute, Mixture
from cloister.models.mixture.within_bins import ScoreRelation, related_numbers
from cloister.models.sampling.chain import Batch
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler
from cloister.models.sampling.row_by_row import in_random_order
from cloister.models.sampling.sampler import ConstraintSampler, rows_to_draw
from cloister.models.sampling.whole_tables import PairChange
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table

_TRIES = 300
"""Rounds of drawing rows and keeping some, before the rest is left to the plain sampler."""

_LEAST_SHARE = 1e-12
"""Added to the share of every level, so that one that parents require can be drawn."""

_LEAST_CORRELATION = 0.8
"""Correlation of normal scores from which on two numbers nearly follow each other."""

_GROUPS = 12
"""Groups of cells of a table; with 6 and with 24 correlations differed by less than 0.005."""

_SURE = 3.0
"""Deviations of the noise above which a cell certainly holds rows."""

_MOST_TIMES = 4.0
"""Times by which a cell may become more frequent at most: the pool has few more of its rows."""

_TURNS = 50
"""Turns of the fit to both histograms."""

_LEAST_MASS = 1e-12
"""Mass, or rows, that are divided by at least."""


def even_quantiles(kinds: Integers, rng: np.random.Generator) -> Floats:
    """Quantiles (n,) in [0, 1), spread evenly over the rows of each kind (n,), in random order."""
    return ranked_quantiles(kinds, rng.random(len(kinds)), rng)


def ranked_quantiles(kinds: Integers, keys: Floats, rng: np.random.Generator) -> Floats:
    """Quantiles (n,) in [0, 1), spread evenly over the rows of each kind (n,), in order of keys."""
    order = np.lexsort((keys, kinds))
    counts = np.bincount(kinds)
    begins = np.cumsum(counts) - counts
    shifts = rng.random(len(counts))
    ranks = np.empty(len(kinds))
    ranks[order] = np.arange(len(kinds)) - begins[kinds[order]] + shifts[kinds[order]]
    return ranks / counts[kinds]


def allocate(shares: Floats, kinds: Integers, rng: np.random.Generator) -> Integers:
    """One level for each row (n,) of a kind (n,), systematically by shares (kinds, size).

    Levels are put in random order first.
    """
    order = rng.permutation(shares.shape[1])
    heights = np.cumsum(shares[:, order], axis=1)
    heights /= heights[:, -1:]
    shifted = (heights + np.arange(len(shares))[:, None]).ravel()
    found = (
        np.searchsorted(shifted, kinds + even_quantiles(kinds, rng), side="right")
        - kinds * shares.shape[1]
    )
    return order[np.clip(found, 0, shares.shape[1] - 1)]


def follow(
    dependent: DependentAttribute,
    parents: Integers,
    shares: Floats,
    kinds: Integers,
    rng: np.random.Generator,
) -> Integers:
    """Levels (n,) of a dependent attribute, systematically by their shares (kinds, size).

    Of the levels, those that its parents allow.
    ``parents`` (n, parents) are levels, ``kinds`` (n,) the line of ``shares`` for each row.
    """
    place, count = dependent.place(parents), len(dependent.children)
    owner = np.repeat(np.arange(len(dependent.keys)), np.diff(dependent.begins))
    children = dependent.children[np.lexsort((rng.random(count), owner))]
    heights = np.cumsum(shares[:, children] + _LEAST_SHARE, axis=1)
    heights = (
        np.hstack([np.zeros((len(shares), 1)), heights / heights[:, -1:]])
        + 2.0 * np.arange(len(shares))[:, None]
    )
    low, high = heights[kinds, dependent.begins[place]], heights[kinds, dependent.begins[place + 1]]
    _, together = np.unique(kinds * len(dependent.keys) + place, return_inverse=True)
    wanted = low + even_quantiles(together, rng) * (high - low)
    found = np.searchsorted(heights.ravel(), wanted, side="right") - 1 - kinds * (count + 1)
    return children[np.clip(found, dependent.begins[place], dependent.begins[place + 1] - 1)]


@dataclass(frozen=True)
class EvenSampler(Sampler):
    """Draws tables from a mixture whose factors and ``dependents`` satisfy all rules on pairs.

    ``plain`` is the constraint sampler over the same mixture, which draws under conditions.
    Attributes that the mixture leaves out follow their histograms. ``relations`` say where values
    lie inside bins.
    """

    plain: ConstraintSampler
    mixture: Mixture
    dependents: tuple[DependentAttribute, ...] = ()
    relations: tuple[ScoreRelation, ...] = ()

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.plain.domain

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """Exactly ``rows`` rows that satisfy every hard constraint, keys left unset.

        Those that hardly can be drawn come from the ``plain`` sampler; SampleError if it has none.
        """
        if given.where:
            return self.plain.draw(rows, rng, given)
        kept, missing, drawn = [self._draw(0, rng.generator)], rows, 0
        kinds = self.plain.kinds(rows)
        for _ in range(_TRIES):
            if not missing:
                return in_random_order(Table.concatenate(kept), kinds, rng.generator)
            tried = rows_to_draw(missing, rows - missing, drawn) if drawn else missing
            tried = kinds.rows_to_draw(missing) if kinds.waiting else tried
            found = self._draw(tried, rng.generator)
            found = found.take(self.plain.acceptance.keep(found, rng.generator))
            kept.append(found.take(kinds.choose(found, self.plain.feasible(found), missing)))
            missing, drawn = missing - kept[-1].rows, drawn + tried
        return Table.concatenate([*kept, self.plain.draw(missing, rng)])

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        chain = self.plain.chain
        batch = Batch.start(chain, rows, rng)
        self._levels(batch, rng)
        batch.nodes = [self._leaves(at, batch) for at in range(len(chain.feasible_sets))]
        self._even(batch, rng)
        codes = {name: chain.refine(batch, name) for name in chain.sequence}
        return self.plain.settle(Table.completed(self.domain, codes, rows), batch, rng)

    def _levels(self, batch: Batch, rng: np.random.Generator) -> None:
        sequence, bins = self.plain.sequence, self.plain.bins
        together = np.zeros(batch.rows, dtype=np.int64)
        component = allocate(self.mixture.weights.double().numpy()[None], together, rng)
        late = {dependent.name for dependent in self.dependents}
        for at, factor in enumerate(self.mixture.layout.factors):
            if late.isdisjoint(factor.attributes):
                level = allocate(self.mixture.factor(at).T.double().numpy(), component, rng)
                batch.levels[:, [sequence.index(name) for name in factor.attributes]] = (
                    factor.levels[level]
                )
        for place in range(len(self.mixture.layout.sizes), len(sequence)):
            if sequence[place] not in late:
                batch.levels[:, place] = allocate(bins[sequence[place]].mass[None], together, rng)
        for dependent in self.dependents:
            shares, kinds = self.plain.bins[dependent.name].mass[None], together
            if dependent.name in self.mixture.layout.factor_of:
                shares, kinds = self.mixture.shares_of(dependent.name).T.double().numpy(), component
            parents = batch.levels[:, [sequence.index(name) for name in dependent.parents]]
            batch.levels[:, sequence.index(dependent.name)] = follow(
                dependent, parents, shares, kinds, rng
            )

    def _leaves(self, at: int, batch: Batch) -> Integers:
        """The row of a feasible set that each row of the batch has; shape (n,)."""
        chain = self.plain.chain
        node = np.zeros(batch.rows, dtype=np.int64)
        for depth, name in enumerate(chain.feasible_sets[at].attributes):
            node = chain.tries[at].step(depth, node, batch.levels[:, chain.sequence.index(name)])
        return node

    def _even(self, batch: Batch, rng: np.random.Generator) -> None:
        """Spread the quantiles of each attribute evenly over the rows of a level, or of a leaf."""
        chain = self.plain.chain
        kinds = {name: batch.levels[:, place] for place, name in enumerate(chain.sequence)}
        for feasible_set, leaf in zip(chain.feasible_sets, batch.nodes, strict=True):
            kinds |= dict.fromkeys(feasible_set.boxes, leaf)
        for name, kind in kinds.items():
            batch.quantiles[name] = even_quantiles(kind, rng)
        for coupling in (
            coupling for feasible_set in chain.feasible_sets for coupling in feasible_set.couplings
        ):
            first = batch.quantiles[coupling.first]
            batch.quantiles[coupling.second] = first if coupling.sign > 0 else 1.0 - first
        for relation in self.relations:
            levels, by = batch.levels[:, chain.sequence.index(relation.of.name)], relation.by.name
            given = batch.levels[:, chain.sequence.index(by)]
            keys = relation.draw(levels, given, self._within_bin(batch, by, given), rng)
            batch.quantiles[relation.of.name] = ranked_quantiles(levels, keys, rng)

    def _within_bin(self, batch: Batch, name: str, levels: Integers) -> Floats:
        """The quantiles (n,) of an attribute in its bins (n,), not in boxes that narrow these."""
        chain = self.plain.chain
        if not chain.has_box(name):
            return batch.quantiles[name]
        ends = chain.bins[name].levels
        bounds = np.stack([ends.start[levels], ends.stop[levels]], axis=1)
        return chain.bins[name].quantile_in_box(bounds, chain.refine(batch, name))


def recalibrate(shares: Floats, tables: Sequence[NoisyTable], rows: int) -> Floats:
    """Joint shares (bins, bins) of a model of ``rows`` rows, nearer to measured tables.

    Their histograms stay as they are.
    """
    found = shares
    for table in tables:
        times = _times_by_lift(_sums(found, table) * rows, table, rows)
        moved = found * times[_cells(table)]
        found = _with_histograms(moved, shares.sum(1), shares.sum(0))
    return found


def _cells(table: NoisyTable) -> tuple[Integers, Integers]:
    """The cell of a table of two attributes in which each pair of bins lies."""
    first, second = (partition.joined for partition in table.partitions)
    return first[:, None], second[None]


def _sums(shares: Floats, table: NoisyTable) -> Floats:
    """Joint shares (bins, bins) summed to the cells of a table."""
    sums = np.zeros(table.counts.shape)
    np.add.at(sums, _cells(table), shares)
    return sums


def _times_by_lift(expected: Floats, table: NoisyTable, rows: int) -> Floats:
    """How much more frequent each cell (parts, parts) of ``expected`` rows becomes."""
    alone = np.outer(expected.sum(1), expected.sum(0)) / rows
    lift = (expected / np.maximum(alone, _LEAST_MASS)).ravel()
    group = np.empty(lift.size, dtype=np.int64)
    group[np.argsort(lift, kind="stable")] = np.arange(lift.size) * _GROUPS // lift.size
    group[(table.counts > _SURE * np.sqrt(table.variances)).ravel()] += _GROUPS
    sums, counts, variances = (
        np.bincount(group, weights=own.ravel(), minlength=2 * _GROUPS)
        for own in (expected, table.counts, table.variances)
    )
    error = counts - sums
    believed = 1.0 - np.minimum(variances / np.maximum(np.square(error), _LEAST_MASS), 1.0)
    wanted = np.maximum(sums + believed * error, 0.0)
    times = np.where(sums > _LEAST_MASS, wanted / np.maximum(sums, _LEAST_MASS), 1.0)
    return np.asarray(times[group].reshape(expected.shape))


def _with_histograms(shares: Floats, first: Floats, second: Floats) -> Floats:
    """Joint shares (bins, bins) in proportion to others, with histograms (bins,) of their own."""
    for _ in range(_TURNS):
        shares = shares * (first / np.maximum(shares.sum(1), _LEAST_MASS))[:, None]
        shares = shares * (second / np.maximum(shares.sum(0), _LEAST_MASS))
    return shares


def pair_changes(
    mixture: Mixture,
    bins: Mapping[str, Histogram],
    names: Collection[str],
    tables: Sequence[NoisyTable],
    rows: int,
) -> tuple[PairChange, ...]:
    """What measured tables change of pairs of numbers, of ``names``, that nearly follow each other.

    ``tables`` are those that the mixture of ``rows`` rows was fitted to. A number is in one pair at
    most; what a hard constraint joins is exact.
    """
    factor_of = mixture.layout.factor_of
    taken: set[str] = set()
    changes = []
    for first, second in related_numbers(mixture, bins, _LEAST_CORRELATION):
        held = [table.project((first, second)) for table in tables if _has(table, first, second)]
        free = {first, second} <= set(names) and taken.isdisjoint((first, second))
        if held and free and factor_of[first] != factor_of[second]:
            taken |= {first, second}
            shares = mixture.marginal([bins[first], bins[second]])
            times = recalibrate(shares, held, rows) / np.maximum(shares, _LEAST_MASS)
            sides = [mixture.layout.factors[factor_of[name]].attributes for name in (first, second)]
            changes.append(PairChange(first, second, np.minimum(times, _MOST_TIMES), *sides))
    return tuple(changes)


def _has(table: NoisyTable, *names: str) -> bool:
    return set(names) <= set(table.names)
