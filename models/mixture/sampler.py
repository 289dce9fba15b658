"""Drawing rows of a mixture from points that fill the unit cube evenly.

A row is one point of a scrambled Sobol sequence: its first coordinate chooses the component, the
others the level of each factor and the value inside each bin. So tables of pairs of attributes are
nearer to the model's than with independent draws, and each row alone has the model's distribution.

Source: Owen, "Randomly permuted (t,m,s)-nets and (t,s)-sequences" (1995); scrambled as in scipy, by
Matoušek, "On the L2-discrepancy for anchored boxes" (1998).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numba
import numpy as np
from scipy.stats.qmc import Sobol

from cloister.arrays import Floats, Integers
from cloister.models.core.costs import MANY_ROWS
from cloister.models.mixture.products import BranchFactor, DependentAttribute, Mixture
from cloister.models.mixture.within_bins import ScoreRelation
from cloister.models.sampling.chain import Batch
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler, Where
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.sampling.whole_tables import BalancedSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table

_LEAST_SHARE = 1e-12
"""Added to the share of every level, so that a level required by parents can be drawn."""

_SEQUENCE = 1 << 20
"""Points of a sequence; rows beyond are of another one, as skipping points costs time for each."""


def ranked_quantiles(kinds: Integers, keys: Floats, rng: np.random.Generator) -> Floats:
    """Quantiles (n,) in [0, 1), spread evenly over the rows of each kind (n,), in order of keys."""
    order = np.lexsort((keys, kinds))
    counts = np.bincount(kinds)
    begins = np.cumsum(counts) - counts
    shifts = rng.random(len(counts))
    ranks = np.empty(len(kinds))
    ranks[order] = np.arange(len(kinds)) - begins[kinds[order]] + shifts[kinds[order]]
    return ranks / counts[kinds]


def allocate(shares: Floats, kinds: Integers, quantiles: Floats) -> Integers:
    """The level at the quantile (n,) of each row, by the shares (kinds, size) of its kind (n,)."""
    heights = np.cumsum(shares, axis=1)
    heights /= heights[:, -1:]
    return _levels_at(heights, kinds, quantiles)


@numba.njit(cache=True, nogil=True)
def _levels_at(heights: Floats, kinds: Integers, quantiles: Floats) -> Integers:
    """The first level (n,) whose cumulated share is above the quantile (n,)."""
    levels = np.empty(len(kinds), np.int64)
    last = heights.shape[1] - 1
    for row in range(len(kinds)):
        level = np.searchsorted(heights[kinds[row]], quantiles[row], side="right")
        levels[row] = min(level, last)
    return levels


def follow(
    dependent: DependentAttribute,
    parents: Integers,
    shares: Floats,
    kinds: Integers,
    quantiles: Floats,
) -> Integers:
    """Levels (n,) of a dependent attribute at quantiles (n,) of their shares (kinds, size).

    Of the levels, those that its parents allow.
    ``parents`` (n, parents) are levels, ``kinds`` (n,) the line of ``shares`` for each row.
    """
    key, children = dependent.key_index(parents), dependent.children
    count = len(children)
    heights = np.cumsum(shares[:, children] + _LEAST_SHARE, axis=1)
    heights = (
        np.hstack([np.zeros((len(shares), 1)), heights / heights[:, -1:]])
        + 2.0 * np.arange(len(shares))[:, None]
    )
    low, high = heights[kinds, dependent.begins[key]], heights[kinds, dependent.begins[key + 1]]
    wanted = low + quantiles * (high - low)
    ranks = np.searchsorted(heights.ravel(), wanted, side="right") - 1 - kinds * (count + 1)
    return children[np.clip(ranks, dependent.begins[key], dependent.begins[key + 1] - 1)]


def _points(engine: Sobol, count: int) -> Floats:
    """The next points (count, axes) of a sequence; at its start of a power of two of them."""
    if engine.num_generated:
        return engine.random(count)
    return engine.random_base2((count - 1).bit_length())[:count]


def _consecutive(scramble: int, axes: int, first: int, count: int) -> Floats:
    """Points (count, axes) of the sequences of a draw, from number ``first`` on."""
    sequence, skipped = divmod(first, _SEQUENCE)
    engine = Sobol(axes, rng=np.random.default_rng([scramble, sequence]))
    return _points(engine.fast_forward(skipped) if skipped else engine, count)


@dataclass(frozen=True)
class EvenSampler(Sampler):
    """Draws tables from a mixture whose factors and ``dependents`` satisfy all rules on pairs.

    ``plain`` is the constraint sampler over the same mixture, which draws under conditions.
    Attributes that the mixture leaves out follow their histograms. ``relations`` say where values
    lie inside bins. With a ``scramble`` the rows of a whole draw are points of one sequence.
    """

    plain: ConstraintSampler
    mixture: Mixture
    dependents: tuple[DependentAttribute, ...] = ()
    relations: tuple[ScoreRelation, ...] = ()
    scramble: int | None = None

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.plain.domain

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> Sampler:
        """What draws the chunks: balanced ones, but of many rows points of one sequence."""
        if rows < MANY_ROWS or where:
            inside = {name: self.plain.bins[name] for name in self.mixture.layout.sizes}
            return BalancedSampler(self, inside)
        return replace(self, scramble=int(rng.generator.integers(1 << 62)))

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """Exactly ``rows`` rows that satisfy every hard constraint, keys left unset.

        Rows that can hardly be drawn come from the ``plain`` sampler; SampleError if it has none.
        """
        scramble, axes = self.scramble, self._axes
        first = [] if scramble is None else [_consecutive(scramble, axes, given.first, rows)]

        def propose(count: int, generator: np.random.Generator) -> Batch:
            points = first.pop() if first else _points(Sobol(axes, rng=generator), count)
            shuffled = points[generator.permutation(count)].T.copy()
            return self._batch(shuffled, generator)

        return self.plain.draw(rows, rng, given, propose)

    @cached_property
    def _wide(self) -> list[str]:
        """The attributes of which a bin holds several values."""
        return [name for name, bins in self.plain.bins.items() if bins.only_values is None]

    @property
    def _axes(self) -> int:
        """Coordinates of a point: component, branches, levels, and values inside bins, at most."""
        branched = len(self.mixture.layout.branched)
        return 1 + branched + len(self.plain.sequence) + len(self._wide)

    def _batch(self, points: Floats, rng: np.random.Generator) -> Batch:
        """The rows of some points (axes, n)."""
        chain, rows = self.plain.chain, points.shape[1]
        axes = iter(points)
        levels = self._levels(axes, rows)
        quantiles = dict.fromkeys(chain.sequence, np.zeros(rows)) | dict(
            zip(self._wide, axes, strict=False)
        )
        nodes = [self._leaves(number, levels) for number in range(len(chain.feasible_sets))]
        batch = Batch(levels, nodes, quantiles, rng)
        self._relate(batch, rng)
        batch.codes = {name: chain.refine(batch, name) for name in chain.sequence}
        return batch

    def _levels(self, axes: Iterator[Floats], rows: int) -> Integers:
        """The levels (rows, attributes) at the next coordinates of some points."""
        sequence, bins = self.plain.sequence, self.plain.bins
        together = np.zeros(rows, dtype=np.int64)
        levels = np.empty((rows, len(sequence)), dtype=np.int64)
        component = allocate(self.mixture.weights.double().numpy()[None], together, next(axes))
        late = {dependent.name for dependent in self.dependents}
        for number, factor in enumerate(self.mixture.layout.factors):
            if isinstance(factor, BranchFactor):
                levels[:, [sequence.index(name) for name in factor.attributes]] = self._branched(
                    number, factor, component, axes
                )
            elif late.isdisjoint(factor.attributes):
                shares = self.mixture.factor(number).T.double().numpy()
                level = allocate(shares, component, next(axes))
                levels[:, [sequence.index(name) for name in factor.attributes]] = factor.levels[
                    level
                ]
        for position in range(len(self.mixture.layout.sizes), len(sequence)):
            if sequence[position] not in late:
                mass = bins[sequence[position]].mass[None]
                levels[:, position] = allocate(mass, together, next(axes))
        for dependent in self.dependents:
            shares, kinds = bins[dependent.name].mass[None], together
            if dependent.name in self.mixture.layout.factor_of:
                shares, kinds = self.mixture.shares_of(dependent.name).T.double().numpy(), component
            parents = levels[:, [sequence.index(name) for name in dependent.parents]]
            levels[:, sequence.index(dependent.name)] = follow(
                dependent, parents, shares, kinds, next(axes)
            )
        return levels

    def _branched(
        self, number: int, factor: BranchFactor, component: Integers, axes: Iterator[Floats]
    ) -> Integers:
        """Levels (rows, attributes) of a factor of branches, for rows of some component (rows,)."""
        branches, attributes = factor.branches.count, factor.attributes
        shares = self.mixture.factor(number)[:branches].T.double().numpy()
        branch = allocate(shares, component, next(axes))
        kinds = component * branches + branch
        levels = np.empty((len(component), len(attributes)), dtype=np.int64)
        for column, name in enumerate(attributes):
            table = self.mixture.in_branches(name).double().numpy()
            by_kind = table.transpose(2, 1, 0).reshape(-1, len(table))
            levels[:, column] = allocate(by_kind, kinds, next(axes))
        return levels

    def _leaves(self, number: int, levels: Integers) -> Integers:
        """The row of a feasible set that each row of ``levels`` has; shape (n,)."""
        chain = self.plain.chain
        node = np.zeros(len(levels), dtype=np.int64)
        for depth, name in enumerate(chain.feasible_sets[number].attributes):
            node = chain.tries[number].step(depth, node, levels[:, chain.sequence.index(name)])
        return node

    def _relate(self, batch: Batch, rng: np.random.Generator) -> None:
        """Set the quantiles of attributes that follow others inside their bins."""
        chain = self.plain.chain
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
