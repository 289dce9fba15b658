"""A Bayesian network over bins: structure, tables, and the fitted model; released statistics only.

Parents are chosen by correlation-based feature selection (section 3.3, equations (4) to (6)).
Conditional tables are posterior means of a Dirichlet distribution, from noisy counts (section 3.4,
equations (11) to (14)), and drawn from exactly (section 3.1, equations (2), (3) and (7)).

Source: Bindschaedler, Shokri, Gunter (VLDB 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models import constrained
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts, restore_counts
from cloister.models.feasible_sets.builder import CompiledConstraints
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.chain import Probabilities
from cloister.models.sampling.drawing import Sampler
from cloister.models.sampling.whole_tables import BalancedSampler
from cloister.models.soft_constraints.reweighting import Reweighting
from cloister.models.task import Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table
from cloister.schema.partition import Partition

Parents = Mapping[str, tuple[str, ...]]

PROBABILITY_STEPS = 2**32
"""Probabilities are multiples of one over this: a record is drawn exactly with the probability by
which its plausible seeds are counted."""

Words = NDArray[np.uint64]

Tables = Mapping[str, Words]

_DRAWN = "each attribute is drawn given its parents in an acyclic network"


@dataclass(frozen=True)
class Correlations:
    """Symmetrical uncertainty of attributes ``names``, each from 0 to 1.

    Shapes: ``target`` (m, m), of an attribute (first axis) and a parent that it may have;
    ``between`` (m, m), of two parents, symmetric.
    """

    names: tuple[str, ...]
    target: Floats
    between: Floats


def symmetrical_uncertainty(first: Floats, second: Floats, joint: Floats) -> Floats:
    """Equation (5), 2 - 2 H(x, y) / (H(x) + H(y)), from noisy entropies, kept within 0 and 1."""
    whole = np.maximum(first + second, 1e-12)
    uncertainty: Floats = np.clip(2.0 - 2.0 * joint / whole, 0.0, 1.0)
    return np.where(first + second > 0, uncertainty, 0.0)


def dependence(distance: float, expected: Floats) -> float:
    """How strongly two attributes depend on each other, from 0 to 1.

    ``distance`` is the noisy L1 distance, in rows, of their table from the counts ``expected``
    under independence. The part due to chance, the mean absolute deviation of Poisson counts, is
    subtracted; half the rest is the share of rows that would have to move: total variation.
    """
    chance = float(np.sqrt(2 * expected / math.pi).sum())
    return float(np.clip((distance - chance) / (2 * expected.sum()), 0.0, 1.0))


def merit(related: Floats, redundant: Floats, parents: int) -> Floats:
    """The score of sets of ``parents`` parents, equation (4); 0 for none.

    ``related`` and ``redundant``, of one shape, add up the correlations of a set with its child,
    and of its members with each other, both ways.
    """
    return related / np.sqrt(parents + redundant) if parents else np.zeros_like(related)


@dataclass(frozen=True)
class ParentLimits:
    """Limits on sets of parents.

    ``sizes`` (m,) is the number of parts of each attribute as a parent; ``most`` (m,) how many
    configurations the parents of each attribute may have, the bound of equation (6); ``least``
    (m, m), the correlation from which on a parent is considered.
    """

    sizes: Sequence[int]
    most: Sequence[float]
    least: Floats


def choose_parents(correlations: Correlations, limits: ParentLimits) -> Parents:
    """The parents of each attribute, greedily: the pair that gains most merit comes next.

    The graph stays acyclic, and the parents of each attribute within their limits. Ends when no
    parent gains merit.
    """
    names = correlations.names
    parents: list[list[int]] = [[] for _ in names]
    above = np.eye(len(names), dtype=bool)
    # above[a, b]: whether a is b or an ancestor of b
    gains = np.stack(
        [_gains(correlations, limits, index, chosen) for index, chosen in enumerate(parents)]
    )
    while True:
        child, parent = divmod(int(np.where(above, 0.0, gains).argmax()), len(names))
        if above[child, parent] or gains[child, parent] <= 0.0:
            return {
                name: tuple(names[p] for p in parents[index]) for index, name in enumerate(names)
            }
        parents[child].append(parent)
        above |= np.outer(above[:, parent], above[child])
        gains[child] = _gains(correlations, limits, child, parents[child])


def _gains(
    correlations: Correlations, limits: ParentLimits, child: int, current: Sequence[int]
) -> Floats:
    """The merit (m,) that each further parent adds to the ``current`` ones; 0 beyond the limits."""
    chosen = list(current)
    related, between = correlations.target[child], correlations.between
    among = between[np.ix_(chosen, chosen)]
    relevance, redundant = related[chosen].sum(), among.sum() - np.trace(among)
    more = redundant + 2.0 * between[:, chosen].sum(axis=1)
    added = merit(relevance + related, more, len(chosen) + 1) - merit(
        relevance, redundant, len(chosen)
    )
    sizes = np.asarray(limits.sizes, dtype=np.float64)
    fits = related > limits.least[child]
    fits &= math.prod(sizes[chosen]) * sizes <= limits.most[child]
    fits[chosen] = False
    return np.where(fits, added, 0.0)


def dependency_order(parents: Parents, preferred: Sequence[str]) -> tuple[str, ...]:
    """The order sigma: parents before children, otherwise as ``preferred``."""
    order: list[str] = []
    left = list(preferred)
    while left:
        ready = next(name for name in left if set(parents.get(name, ())) <= set(order))
        order.append(ready)
        left.remove(ready)
    return tuple(order)


@dataclass(frozen=True, eq=False)
class BayesianNetwork:
    """Conditional tables of attributes in the order ``sequence``, parents before children.

    Shapes: ``tables[name]`` (configurations, bins) uint64, each row summing to 2^32; configurations
    are those of the parents' parts, the last parent fastest. Parents are bucketised, equation (7),
    by their ``coarsenings``.
    """

    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    coarsenings: Mapping[str, Partition]
    parents: Parents
    tables: Tables

    @cached_property
    def partitions(self) -> tuple[Histogram, ...]:
        """The bins of each attribute, in order."""
        return tuple(self.bins[name] for name in self.sequence)

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``position``; see `TupleModel`."""
        shares = self._shares[position]
        return shares if len(shares) == 1 else shares[self.configurations(position, context)]

    def configurations(self, position: int, levels: Integers) -> Integers:
        """The configuration (n,) of the parents of an attribute, from levels (n, k) before it."""
        numbers = np.zeros(len(levels), dtype=np.int64)
        for parent in self.parents.get(self.sequence[position], ()):
            coarsening = self.coarsenings[parent]
            numbers *= coarsening.size
            numbers += coarsening.joined[levels[:, self._places[parent]]]
        return numbers

    def draw(self, position: int, levels: Integers, words: Words) -> Integers:
        """A level (n,), by even numbers (n,) below 2^32; see `RecordModel`."""
        rows = self.configurations(position, levels)
        wanted = (rows.astype(np.uint64) << np.uint64(32)) + words
        size = self.bins[self.sequence[position]].size
        drawn = np.searchsorted(self._heights[position], wanted, side="right") - rows * size
        return drawn.astype(np.int64)

    def logs(self, position: int, levels: Integers) -> Floats:
        """log2 of the probability (n,) of the level at a position; see `RecordModel`."""
        return self._logs[position][self.configurations(position, levels), levels[:, position]]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.sequence)}

    @cached_property
    def _shares(self) -> tuple[Floats, ...]:
        return tuple(self.tables[n].astype(np.float64) / PROBABILITY_STEPS for n in self.sequence)

    @cached_property
    def _logs(self) -> tuple[Floats, ...]:
        with np.errstate(divide="ignore"):
            return tuple(np.log2(shares) for shares in self._shares)

    @cached_property
    def _heights(self) -> tuple[Words, ...]:
        """Cumulative tables, flat: those of configuration c lie above c 2^32."""
        return tuple(_heights(self.tables[name]) for name in self.sequence)


def _heights(table: Words) -> Words:
    below = np.cumsum(table, axis=1, dtype=np.uint64)
    above = np.arange(len(table), dtype=np.uint64)[:, None] << np.uint64(32)
    return np.asarray((below + above).ravel(), dtype=np.uint64)


def in_steps(shares: Floats) -> Words:
    """Probabilities (configurations, bins) as multiples of 2^-32 that add up to one exactly."""
    whole = shares / shares.sum(axis=1, keepdims=True)
    steps = np.floor(whole * PROBABILITY_STEPS).astype(np.int64)
    rows, largest = np.arange(len(steps)), steps.argmax(axis=1)
    steps[rows, largest] += PROBABILITY_STEPS - steps.sum(axis=1)
    return steps.astype(np.uint64)


@dataclass(frozen=True)
class NetworkModel(constrained.ReweightedModel):
    """A Bayesian network, and the rules that its rows satisfy.

    ``steps`` say in sentences what was done to its noisy answers.
    """

    task: Task
    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    network: BayesianNetwork
    rules: CompiledConstraints
    steps: tuple[str, ...]
    reweighting: Reweighting | None = None
    released_counts: ReleasedCounts | None = None

    @classmethod
    def of(
        cls,
        task: Task,
        network: BayesianNetwork,
        rules: CompiledConstraints,
        steps: tuple[str, ...],
        reweighting: Reweighting | None = None,
    ) -> Self:
        """The model of a network, whose attributes are drawn in its order."""
        return cls(task, network.sequence, network.bins, network, rules, steps, reweighting)

    @property
    def sampler(self) -> Sampler:
        """Balanced draws, or the constraint sampler alone if rows depend on those before them."""
        plain = self.constraint_sampler
        return plain if plain.remembers else BalancedSampler(plain, self._inside)

    def pool(self, rows: int, rng: SamplingSource) -> Table:
        """About ``rows`` rows on which the model's own rates are measured, keys left unset.

        At most as many as are released if each row must fit all before it.
        """
        plain = self.constraint_sampler
        return plain.draw(min(rows, self.task.data_rows) if plain.remembers else rows, rng)

    @property
    def tuple_model(self) -> BayesianNetwork:
        """The network as a chain of conditionals."""
        return self.network

    def processing_of_counts(self) -> tuple[str, ...]:
        """What was done to histograms, dependences and tables."""
        return self.steps

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows are made from the network."""
        return (_DRAWN,) if self.constraint_sampler.remembers else (_DRAWN, constrained.BALANCED)

    def own_state(self) -> ModelState:
        """The network as JSON and arrays."""
        network, arrays = self.network, dict[str, NDArray[Any]]()
        for index, name in enumerate(self.sequence):
            arrays[f"table.{index}"] = network.tables[name]
            if name in network.coarsenings:
                arrays[f"parts.{index}"] = network.coarsenings[name].joined
        parents = {name: list(above) for name, above in network.parents.items()}
        return {"parents": parents, "steps": list(self.steps)}, arrays

    @property
    def _inside(self) -> dict[str, Histogram]:
        return {name: self.bins[name] for name in self.sequence if name in self.network.coarsenings}


def restore_network(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> NetworkModel:
    """The model whose :meth:`NetworkModel.state` is given."""
    sequence = tuple(meta["sequence"])
    bins = constrained.restore_bins(task, sequence, arrays)
    coarsenings = {
        name: bins[name].coarsen(arrays[f"parts.{index}"])
        for index, name in enumerate(sequence)
        if f"parts.{index}" in arrays
    }
    tables = {
        name: arrays[f"table.{index}"].astype(np.uint64) for index, name in enumerate(sequence)
    }
    parents = {name: tuple(above) for name, above in meta["parents"].items()}
    network = BayesianNetwork(sequence, bins, coarsenings, parents, tables)
    rules, reweighting = (
        constrained.restore_rules(task, meta, arrays),
        constrained.restore_reweighting(task, meta, arrays),
    )
    model = NetworkModel.of(task, network, rules, tuple(meta["steps"]), reweighting)
    return replace(model, released_counts=restore_counts(task, bins, meta, arrays))
