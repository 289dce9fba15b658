"""Drawing rows of a mixture with low variance.

Component sizes, the levels inside a component and the values inside a bin are drawn by systematic
sampling, so that every marginal of the rows is nearer to the model's than with independent draws.
Each row alone has the model's distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.mixture.products import DependentAttribute, Mixture
from cloister.models.mixture.within_bins import ScoreRelation
from cloister.models.sampling.chain import Batch
from cloister.models.sampling.drawing import ANYTHING, Given, Sampler
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Domain, Table

_LEAST_SHARE = 1e-12
"""Added to the share of every level, so that a level required by parents can be drawn."""


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
    ranks = (
        np.searchsorted(shifted, kinds + even_quantiles(kinds, rng), side="right")
        - kinds * shares.shape[1]
    )
    return order[np.clip(ranks, 0, shares.shape[1] - 1)]


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
    key, count = dependent.key_index(parents), len(dependent.children)
    owner = np.repeat(np.arange(len(dependent.keys)), np.diff(dependent.begins))
    children = dependent.children[np.lexsort((rng.random(count), owner))]
    heights = np.cumsum(shares[:, children] + _LEAST_SHARE, axis=1)
    heights = (
        np.hstack([np.zeros((len(shares), 1)), heights / heights[:, -1:]])
        + 2.0 * np.arange(len(shares))[:, None]
    )
    low, high = heights[kinds, dependent.begins[key]], heights[kinds, dependent.begins[key + 1]]
    _, together = np.unique(kinds * len(dependent.keys) + key, return_inverse=True)
    wanted = low + even_quantiles(together, rng) * (high - low)
    ranks = np.searchsorted(heights.ravel(), wanted, side="right") - 1 - kinds * (count + 1)
    return children[np.clip(ranks, dependent.begins[key], dependent.begins[key + 1] - 1)]


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

        Rows that can hardly be drawn come from the ``plain`` sampler; SampleError if it has none.
        """
        return self.plain.draw(rows, rng, given, self._batch)

    def _batch(self, rows: int, rng: np.random.Generator) -> Batch:
        chain = self.plain.chain
        batch = Batch.start(chain, rows, rng)
        self._levels(batch, rng)
        batch.nodes = [self._leaves(number, batch) for number in range(len(chain.feasible_sets))]
        self._even(batch, rng)
        batch.codes = {name: chain.refine(batch, name) for name in chain.sequence}
        return batch

    def _levels(self, batch: Batch, rng: np.random.Generator) -> None:
        sequence, bins = self.plain.sequence, self.plain.bins
        together = np.zeros(batch.rows, dtype=np.int64)
        component = allocate(self.mixture.weights.double().numpy()[None], together, rng)
        late = {dependent.name for dependent in self.dependents}
        for number, factor in enumerate(self.mixture.layout.factors):
            if late.isdisjoint(factor.attributes):
                level = allocate(self.mixture.factor(number).T.double().numpy(), component, rng)
                batch.levels[:, [sequence.index(name) for name in factor.attributes]] = (
                    factor.levels[level]
                )
        for position in range(len(self.mixture.layout.sizes), len(sequence)):
            if sequence[position] not in late:
                batch.levels[:, position] = allocate(
                    bins[sequence[position]].mass[None], together, rng
                )
        for dependent in self.dependents:
            shares, kinds = self.plain.bins[dependent.name].mass[None], together
            if dependent.name in self.mixture.layout.factor_of:
                shares, kinds = self.mixture.shares_of(dependent.name).T.double().numpy(), component
            parents = batch.levels[:, [sequence.index(name) for name in dependent.parents]]
            batch.levels[:, sequence.index(dependent.name)] = follow(
                dependent, parents, shares, kinds, rng
            )

    def _leaves(self, number: int, batch: Batch) -> Integers:
        """The row of a feasible set that each row of the batch has; shape (n,)."""
        chain = self.plain.chain
        node = np.zeros(batch.rows, dtype=np.int64)
        for depth, name in enumerate(chain.feasible_sets[number].attributes):
            node = chain.tries[number].step(
                depth, node, batch.levels[:, chain.sequence.index(name)]
            )
        return node

    def _even(self, batch: Batch, rng: np.random.Generator) -> None:
        """Spread the quantiles of each attribute evenly over the rows of a level, or of a leaf."""
        chain = self.plain.chain
        kinds = {name: batch.levels[:, position] for position, name in enumerate(chain.sequence)}
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
