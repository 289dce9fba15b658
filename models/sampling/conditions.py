"""Rows under a condition, without rejection.

A condition gives some columns a value. Levels that cannot lead to it are closed before they are
drawn; what a level leaves of the condition's probability is a weight, and rows are resampled by
their weights, systematically. Where the columns come first the weights are equal and the draw is
exact; for later columns it is a particle filter, exact in the limit of many particles, and every
row satisfies the condition in any case.

Source: Gordon, Salmond, Smith, "Novel approach to nonlinear/non-Gaussian Bayesian state estimation"
(1993); systematic resampling is Kitagawa's (1996).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from cloister.arrays import Integers
from cloister.constraints.supports import Support
from cloister.errors import SampleError
from cloister.schema.columns import OUTSIDE
from cloister.schema.domain import Domain
from models.protocol import Where
from models.sampling.ancestral import AncestralSampler, Batch, Chain, Numbers

PARTICLES = 8
HALVINGS = 60
DEGENERATE = 0.5


@dataclass(frozen=True)
class Condition:
    """Some columns and the fine code that each must have.

    Fulfils :class:`models.sampling.ancestral.Evidence`.
    """

    codes: Mapping[str, int]
    chain: Chain

    @classmethod
    def of(cls, where: Where, domain: Domain, chain: Chain) -> Condition:
        """The condition that columns have values; None is a missing value.

        Raises:
            SampleError: a column is unknown or a key, a value is outside its domain, or no row can
                have it.
        """
        condition = cls(
            {name: _code(name, value, domain, chain) for name, value in where.items()}, chain
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
        batch = Batch.start(self.chain, rows * PARTICLES if late else rows, rng)
        for place in range(len(self.chain.sequence)):
            draw.extend(batch, place)
            if place in self._weighted:
                batch = self._resampled(batch, rows, last=place == self._weighted[-1])
        for name, code in self.codes.items():
            batch.end(place, batch.codes[name] != code)
        return batch

    def likelihood(self, place: int, nodes: Integers, levels: Integers) -> Numbers | None:
        """The share left of levels (c,) that follow nodes (c, supports met at the place).

        None if all is.
        """
        name = self.chain.sequence[place]
        shares = [self._level_shares[name][levels]] if name in self.codes else []
        for column, (at, depth) in enumerate(self.chain.supports_at[place]):
            if at in self._open:
                trie = self.chain.tries[at]
                shares.append(self._open[at][depth][trie.step(depth, nodes[:, column], levels)])
        return np.prod(shares, axis=0) if shares else None

    def restrict(self, batch: Batch, names: Sequence[str]) -> None:
        """Move the quantiles of settled attributes, and of those coupled to them, to where the condition holds."""
        for name in names:
            if name in self.codes:
                low, high = self._intervals(name, batch)
                self._move(batch, name, low, high)

    def _intervals(self, name: str, batch: Batch) -> tuple[Numbers, Numbers]:
        """The quantiles [low, high) (n,), or (1,) if the same for all, at which an attribute takes its code."""
        if not self.chain.boxed(name):
            return self._interval(name, None, 1)
        boxes, kind = np.unique(self.chain.box(name, batch.nodes), axis=0, return_inverse=True)
        low, high = self._interval(name, boxes, len(boxes))
        return low[kind.ravel()], high[kind.ravel()]

    def _move(self, batch: Batch, name: str, low: Numbers, high: Numbers) -> None:
        moved = low + batch.quantiles[name] * (high - low)
        batch.quantiles[name] = moved
        for support in self.chain.supports:
            for coupling in support.couplings:
                if name in (coupling.first, coupling.second):
                    partner = coupling.second if name == coupling.first else coupling.first
                    batch.quantiles[partner] = moved if coupling.sign > 0 else 1.0 - moved

    def _interval(self, name: str, boxes: Integers | None, rows: int) -> tuple[Numbers, Numbers]:
        """The quantiles [low, high) (rows,) at which the attribute takes its code, in its level or in boxes."""
        groups, code = self.chain.groups[name], self.codes[name]
        level = groups.of(np.full(rows, code))

        def value(quantile: Numbers) -> Integers:
            return (
                groups.refine(level, quantile)
                if boxes is None
                else groups.refine_box(boxes, quantile)
            )

        return _crossing(lambda q: value(q) >= code, rows), _crossing(
            lambda q: value(q) > code, rows
        )

    def _resampled(self, batch: Batch, rows: int, last: bool) -> Batch:
        weight = batch.weight * batch.alive
        if not weight.any():
            raise SampleError(
                f"no row can be drawn under {self.name}; ask for a value that the model can give"
            )
        wanted = rows if last else batch.rows
        if weight.min() == weight.max():
            return batch.take(np.arange(wanted))
        if not last and weight.sum() ** 2 / np.square(weight).sum() > DEGENERATE * batch.rows:
            return batch
        heights = np.cumsum(weight) / weight.sum()
        places = (np.arange(wanted) + batch.rng.random()) / wanted
        taken = np.minimum(np.searchsorted(heights, places, side="right"), batch.rows - 1)
        return batch.take(batch.rng.permutation(taken))

    @cached_property
    def _weighted(self) -> tuple[int, ...]:
        """The places at which the condition can leave less than all."""
        names = set(self.codes).union(*(self.chain.supports[at].attributes for at in self._open))
        return tuple(sorted(self.chain.sequence.index(name) for name in names))

    @cached_property
    def _level_shares(self) -> dict[str, Numbers]:
        shares = {}
        for name, code in self.codes.items():
            groups = self.chain.groups[name]
            shares[name] = np.zeros(groups.size)
            low, high = (
                (0.0, 1.0)
                if self.chain.boxed(name)
                else (float(end[0]) for end in self._interval(name, None, 1))
            )
            shares[name][groups.of(np.array([code]))[0]] = high - low
        return shares

    @cached_property
    def _open(self) -> dict[int, list[Numbers]]:
        """For each support that the condition touches, what it leaves of the nodes of each depth."""
        return {
            at: self._open_nodes(at, support)
            for at, support in enumerate(self.chain.supports)
            if any(name in self.codes for name in support.attributes)
        }

    def _open_nodes(self, at: int, support: Support) -> list[Numbers]:
        shares = self._leaf_shares(support)
        trie, nodes, opened = self.chain.tries[at], np.zeros(len(shares), dtype=np.int64), []
        for depth in range(len(support.attributes)):
            nodes = trie.step(depth, nodes, support.levels[:, depth])
            left = np.zeros(int(nodes.max(initial=0)) + 1)
            left[nodes[shares > 0]] = 1.0
            opened.append(left)
        opened[-1][nodes] = shares
        return opened

    def _leaf_shares(self, support: Support) -> Numbers:
        """The probability (leaves,) that a row of each leaf fulfils the condition inside its boxes."""
        low, high = np.zeros(len(support.levels)), np.ones(len(support.levels))
        for depth, name in enumerate(support.attributes):
            if name in self.codes:
                fits = self._level_shares[name][support.levels[:, depth]] > 0
                high[~fits] = 0.0
                if name in support.boxes:
                    box = support.boxes[name]
                    begin, end = self._interval(name, box, len(box))
                    if any(c.second == name and c.sign < 0 for c in support.couplings):
                        begin, end = 1.0 - end, 1.0 - begin
                    low, high = np.maximum(low, begin), np.minimum(high, end)
        return np.maximum(high - low, 0.0)

    def _require_reachable(self) -> None:
        for at, opened in self._open.items():
            if not opened[-1].any():
                names = ", ".join(f"'{name}'" for name in self.chain.supports[at].attributes)
                raise SampleError(
                    f"no row can be drawn under {self.name}: the hard constraints on {names} leave no such row; "
                    "ask for another value"
                )


def _code(name: str, value: object, domain: Domain, chain: Chain) -> int:
    if name not in domain:
        raise SampleError(
            f"the condition on '{name}' names no column; use one of the declared columns"
        )
    if name not in chain.sequence:
        raise SampleError(
            f"the condition on '{name}' is on a key, whose values carry no meaning; use another column"
        )
    code = int(domain[name].encode(pd.Series([value], dtype=object))[0])
    if code == OUTSIDE:
        raise SampleError(
            f"the condition on '{name}' asks for a value outside its domain; use a declared value"
        )
    return code


def _crossing(above: Callable[[Numbers], np.ndarray], rows: int) -> Numbers:
    """The least quantile (rows,) at which a monotone statement becomes true; 1 where it never does."""
    low, high = np.zeros(rows), np.ones(rows)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        true = above(middle)
        low, high = np.where(true, low, middle), np.where(true, middle, high)
    return high
