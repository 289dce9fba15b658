"""Rows under a condition, or with some attributes given, without rejection.

A condition gives some columns a value. Levels that cannot lead to it are excluded before they are
drawn; the probability of the condition given a level is a weight, and rows are resampled by their
weights, systematically. Where the columns come first the weights are equal and the draw is exact;
for later columns it is a particle filter, exact in the limit of many particles, and every row
satisfies the condition in any case.

Source: Gordon, Salmond, Smith, "Novel approach to nonlinear/non-Gaussian Bayesian state estimation"
(1993); systematic resampling is Kitagawa's (1996).

Where each row has its own given values, these take their places in the chain with the levels that
they have, so the conditionals of all later attributes see them, and feasible sets are followed
through them. A row whose given values no feasible set allows has a dead end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd

from cloister.arrays import Booleans, Floats, Integers
from cloister.errors import SampleError
from cloister.models.feasible_sets.feasible_set import Coupling, FeasibleSet
from cloister.models.sampling.ancestral import AncestralSampler, ImportanceWeight, PairwiseChecker
from cloister.models.sampling.chain import Batch, ConstrainedChain
from cloister.models.sampling.drawing import Where
from cloister.schema.columns import OUTSIDE
from cloister.schema.domain import Domain
from cloister.schema.partition import Partition

_PARTICLES = 8
"""Rows drawn per row of the result, if the condition is on late columns."""

_HALVINGS = 60
"""Bisections of [0, 1] for a quantile: more than a float64 resolves."""

_ELSEWHERE = 1e-9
"""Factor on levels that a row does not repeat: they are drawn where no other is possible."""

_DEGENERATE = 0.5
"""Rows are resampled where their effective number falls below this share of their number."""


@dataclass(frozen=True)
class Condition:
    """Some columns and the fine code that each must have.

    Implements :class:`cloister.models.sampling.ancestral.Evidence`.
    """

    codes: Mapping[str, int]
    chain: ConstrainedChain

    @classmethod
    def of(cls, where: Where, domain: Domain, chain: ConstrainedChain) -> Condition:
        """The condition that columns have values; None is a missing value.

        Raises:
            SampleError: a column is unknown or a key, a value is outside its domain, or no row can
                have it.
        """
        condition = cls(
            {n: condition_code(n, value, domain, chain.sequence) for n, value in where.items()},
            chain,
        )
        condition._require_reachable()
        return condition

    @property
    def name(self) -> str:
        """The condition as messages name it."""
        return "the condition on " + ", ".join(f"'{name}'" for name in self.codes)

    def draw(self, rows: int, rng: np.random.Generator) -> Batch:
        """A batch of ``rows`` rows under the condition."""
        late = self._weighted[-1] >= len(self._weighted)
        draw = AncestralSampler(self.chain, evidence=self)
        batch = Batch.start(self.chain, rows * _PARTICLES if late else rows, rng)
        for position in range(len(self.chain.sequence)):
            draw.extend(batch, position)
            if position in self._weighted:
                batch = self._resampled(batch, rows, last=position == self._weighted[-1])
        for name, code in self.codes.items():
            batch.end(position, batch.codes[name] != code)
        return batch

    def likelihood(self, position: int, nodes: Integers, levels: Integers) -> Floats | None:
        """The probability (c,) of the condition, given levels (c,) that follow ``nodes``.

        Shape of ``nodes``: (c, feasible sets at the position). None if the condition always holds.
        """
        name = self.chain.sequence[position]
        shares = [self._level_shares[name][levels]] if name in self.codes else []
        for column, (index, depth) in enumerate(self.chain.sets_at[position]):
            if index in self._node_shares:
                trie = self.chain.tries[index]
                shares.append(
                    self._node_shares[index][depth][trie.step(depth, nodes[:, column], levels)]
                )
        return np.prod(shares, axis=0) if shares else None

    def restrict(self, batch: Batch, names: Sequence[str]) -> None:
        """Move the quantiles of resolved attributes, and of coupled ones, to where it holds."""
        for name in names:
            if name in self.codes:
                low, high = self._intervals(name, batch)
                self._move(batch, name, low, high)

    def _intervals(self, name: str, batch: Batch) -> tuple[Floats, Floats]:
        """The quantiles [low, high) at which an attribute takes its code.

        Shape (n,), or (1,) if they are the same for all rows.
        """
        if not self.chain.has_box(name):
            return self._interval(name, None, 1)
        boxes, kind = np.unique(self.chain.box(name, batch.nodes), axis=0, return_inverse=True)
        low, high = self._interval(name, boxes, len(boxes))
        return low[kind.ravel()], high[kind.ravel()]

    def _move(self, batch: Batch, name: str, low: Floats, high: Floats) -> None:
        moved = low + batch.quantiles[name] * (high - low)
        batch.quantiles[name] = moved
        for feasible_set in self.chain.feasible_sets:
            for coupling in feasible_set.couplings:
                if name in (coupling.first, coupling.second):
                    partner = coupling.second if name == coupling.first else coupling.first
                    batch.quantiles[partner] = moved if coupling.sign > 0 else 1.0 - moved

    def _interval(self, name: str, boxes: Integers | None, rows: int) -> tuple[Floats, Floats]:
        """The quantiles [low, high) (rows,) at which an attribute takes its code.

        They are quantiles of ``boxes`` (rows, 2), or of the attribute's level if that is None.
        """
        bins, code = self.chain.bins[name], self.codes[name]
        level = bins.index(np.full(rows, code))

        def value(quantile: Floats) -> Integers:
            return (
                bins.refine(level, quantile) if boxes is None else bins.refine_box(boxes, quantile)
            )

        return _crossing(lambda q: value(q) >= code, rows), _crossing(
            lambda q: value(q) > code, rows
        )

    def _resampled(self, batch: Batch, rows: int, last: bool) -> Batch:
        weight = batch.weight * batch.alive
        if not weight.any():
            raise SampleError(
                f"no row can be drawn under {self.name}; choose a value that the model can give"
            )
        wanted = rows if last else batch.rows
        if weight.min() == weight.max():
            return batch.take(np.arange(wanted))
        if not last and weight.sum() ** 2 / np.square(weight).sum() > _DEGENERATE * batch.rows:
            return batch
        heights = np.cumsum(weight) / weight.sum()
        places = (np.arange(wanted) + batch.rng.random()) / wanted
        taken = np.minimum(np.searchsorted(heights, places, side="right"), batch.rows - 1)
        return batch.take(batch.rng.permutation(taken))

    @cached_property
    def _weighted(self) -> tuple[int, ...]:
        """The positions at which the condition can have a probability below 1."""
        names = set(self.codes).union(
            *(self.chain.feasible_sets[index].attributes for index in self._node_shares)
        )
        return tuple(sorted(self.chain.sequence.index(name) for name in names))

    @cached_property
    def _level_shares(self) -> dict[str, Floats]:
        shares = {}
        for name, code in self.codes.items():
            bins = self.chain.bins[name]
            shares[name] = np.zeros(bins.size)
            low, high = (
                (0.0, 1.0)
                if self.chain.has_box(name)
                else (float(end[0]) for end in self._interval(name, None, 1))
            )
            shares[name][bins.index(np.array([code]))[0]] = high - low
        return shares

    @cached_property
    def _node_shares(self) -> dict[int, list[Floats]]:
        """For each set with a column of the condition, its probability by depth and node."""
        return {
            index: self._node_shares_of(index, feasible_set)
            for index, feasible_set in enumerate(self.chain.feasible_sets)
            if any(name in self.codes for name in feasible_set.attributes)
        }

    def _node_shares_of(self, index: int, feasible_set: FeasibleSet) -> list[Floats]:
        shares = self._leaf_shares(feasible_set)
        trie, nodes, opened = self.chain.tries[index], np.zeros(len(shares), dtype=np.int64), []
        for depth in range(len(feasible_set.attributes)):
            nodes = trie.step(depth, nodes, feasible_set.levels[:, depth])
            left = np.zeros(int(nodes.max(initial=0)) + 1)
            left[nodes[shares > 0]] = 1.0
            opened.append(left)
        opened[-1][nodes] = shares
        return opened

    def _leaf_shares(self, feasible_set: FeasibleSet) -> Floats:
        """The probability (leaves,) that a row of a leaf satisfies the condition in its boxes."""
        low, high = np.zeros(len(feasible_set.levels)), np.ones(len(feasible_set.levels))
        for depth, name in enumerate(feasible_set.attributes):
            if name in self.codes:
                fits = self._level_shares[name][feasible_set.levels[:, depth]] > 0
                high[~fits] = 0.0
                if name in feasible_set.boxes:
                    box = feasible_set.boxes[name]
                    begin, end = self._interval(name, box, len(box))
                    if any(c.second == name and c.sign < 0 for c in feasible_set.couplings):
                        begin, end = 1.0 - end, 1.0 - begin
                    low, high = np.maximum(low, begin), np.minimum(high, end)
        return np.maximum(high - low, 0.0)

    def _require_reachable(self) -> None:
        for index, opened in self._node_shares.items():
            if not opened[-1].any():
                names = ", ".join(
                    f"'{name}'" for name in self.chain.feasible_sets[index].attributes
                )
                raise SampleError(
                    f"no row can be drawn under {self.name}: the hard constraints on {names} "
                    "leave no such row; choose another value"
                )


def condition_code(name: str, value: object, domain: Domain, drawn: Collection[str]) -> int:
    """The fine code of a value that a condition gives a column, one of those that are ``drawn``.

    Raises:
        SampleError: the column is unknown or a key, or the value is outside its domain.
    """
    if name not in domain:
        raise SampleError(
            f"the condition on '{name}' names no column; use one of the declared columns"
        )
    if name not in drawn:
        raise SampleError(
            f"the condition on '{name}' is on a key, whose values carry no meaning; "
            "use another column"
        )
    code = int(domain[name].encode(pd.Series([value], dtype=object))[0])
    if code == OUTSIDE:
        raise SampleError(
            f"the condition on '{name}' gives a value outside its domain; use a declared value"
        )
    return code


def _crossing(above: Callable[[Floats], Booleans], rows: int) -> Floats:
    """The least quantile (rows,) at which a monotone condition becomes true; 1 if it never does."""
    low, high = np.zeros(rows), np.ones(rows)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        true = above(middle)
        low, high = np.where(true, low, middle), np.where(true, middle, high)
    return high


@dataclass(frozen=True)
class GivenSampler:
    """Draws batches of rows from a chain under ``given`` attributes.

    Their values, and those of attributes outside the chain, come with each draw.
    """

    chain: ConstrainedChain
    given: tuple[str, ...]
    checker: PairwiseChecker | None = None

    def draw(
        self,
        codes: Mapping[str, Integers],
        rng: np.random.Generator,
        importance: ImportanceWeight | None = None,
    ) -> Batch:
        """A batch of rows with fine codes (n,) given by name."""
        sampler = replace(self._sampler, importance=importance)
        batch = Batch.start(self.chain, len(next(iter(codes.values()))), rng)
        batch.codes |= codes
        for position, name in enumerate(self.chain.sequence):
            if name in self.given:
                sampler.advance(batch, position, self.chain.bins[name].index(codes[name]))
            else:
                sampler.extend(batch, position)
        last = len(self.chain.sequence)
        for name in self.given:
            if self.chain.has_box(name):
                box = self.chain.box(name, batch.nodes)
                batch.end(last, (codes[name] < box[:, 0]) | (codes[name] >= box[:, 1]))
        return batch

    @cached_property
    def _sampler(self) -> AncestralSampler:
        coupled = CoupledToGiven(self.chain, self.given)
        return AncestralSampler(self.chain, coupled if coupled.couplings else None, self.checker)


@dataclass(frozen=True)
class CoupledToGiven:
    """Moves attributes that a feasible set couples to a given one along with its value.

    Implements :class:`cloister.models.sampling.ancestral.Evidence`.
    """

    chain: ConstrainedChain
    given: tuple[str, ...]

    @cached_property
    def couplings(self) -> tuple[Coupling, ...]:
        """The couplings of a given attribute with one that is drawn."""
        return tuple(
            coupling
            for feasible_set in self.chain.feasible_sets
            for coupling in feasible_set.couplings
            if (coupling.first in self.given) != (coupling.second in self.given)
        )

    def likelihood(self, position: int, nodes: Integers, levels: Integers) -> Floats | None:  # noqa: ARG002
        """None: given values do not make levels of others more or less likely here."""
        return None

    def restrict(self, batch: Batch, names: Sequence[str]) -> None:
        """Set the quantiles of resolved attributes by the values of those they are coupled to."""
        for coupling in self.couplings:
            first_given = coupling.first in self.given
            fixed, moved = coupling.first, coupling.second
            if not first_given:
                fixed, moved = moved, fixed
            if moved in names:
                box = self.chain.box(fixed, batch.nodes)
                quantile = self.chain.bins[fixed].quantile_in_box(box, batch.codes[fixed])
                batch.quantiles[moved] = quantile if coupling.sign > 0 else 1.0 - quantile


@dataclass(frozen=True, eq=False)
class Repeated:
    """An attribute of which rows of a group repeat parts, with probability ``strength`` in all.

    With probability ``whole`` they repeat the value.
    """

    partition: Partition
    strength: float
    whole: float = 0.0


def _chances(strength: float, rows: Integers) -> Floats:
    """The probabilities (n,) of a repetition after so many rows (n,): those of an urn."""
    return np.asarray(rows * strength / (1 + (rows - 1) * strength))


@dataclass(frozen=True)
class Repetitions:
    """Factors (n, levels) on attributes by name, and values (n,) that are repeated, -1 for none.

    Implements :class:`cloister.models.sampling.ancestral.ImportanceWeight`.
    """

    levels: Mapping[str, Floats]
    repeated: Mapping[str, Integers]

    @classmethod
    def of(
        cls,
        repeated: Mapping[str, Repeated],
        chain: ConstrainedChain,
        codes: Mapping[str, Integers],
        before: Integers,
        rng: np.random.Generator,
    ) -> Self:
        """What rows (n,) repeat of others with some ``codes`` (n,), one of ``before`` (n,) each."""
        factors, values, lots = {}, {}, rng.random(len(before))
        for name, each in repeated.items():
            bins, points = chain.bins[name], each.partition.index(chain.bins[name].levels.point)
            whole = (lots < _chances(each.whole, before)) & (not chain.has_box(name))
            rows = np.flatnonzero(lots < _chances(each.strength, before))
            # the levels in a row's part; of a value that is repeated, its own alone
            fits = points == each.partition.index(codes[name][rows])[:, None]
            exactly = np.flatnonzero(whole[rows])
            levels = bins.index(codes[name][rows[exactly]])
            fits[exactly] = np.arange(bins.size) == levels[:, None]
            factors[name] = np.ones((len(before), bins.size))
            factors[name][rows] = np.where(fits, 1.0, _ELSEWHERE)
            values[name] = np.where(whole, codes[name], -1)
        return cls(factors, values)

    def factors(self, name: str) -> Floats | None:
        """Factors (n, levels) on the probabilities of an attribute."""
        return self.levels.get(name)

    def quantiles(self, name: str, levels: Integers, rng: np.random.Generator) -> None:  # noqa: ARG002
        """None: values are even inside levels."""
        return

    def values(self, drawn: Mapping[str, Integers]) -> Mapping[str, Integers]:
        """Drawn codes (n,) of these attributes, with values that are repeated."""
        return {n: np.where(c < 0, drawn[n], c) for n, c in self.repeated.items()}
