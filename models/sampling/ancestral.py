"""Drawing bins and values of a batch of rows, attribute by attribute, inside feasible sets.

A row is at one node of the trie of each feasible set: the levels that it has of the set's first
attributes. Rows at the same nodes of all sets that an attribute is in may take the same levels of
it, so what is allowed is found once for each such kind of rows, and not for each row.

Source: Kamino Algorithm 3, with feasible sets in place of counting violations where a constraint
has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from cloister.arrays import TINY, Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.sampling.chain import Batch, ConstrainedChain, Probabilities

_ENUMERATED = 256
"""Up to this many values, or levels, all are candidates of an attribute drawn row by row."""

_CANDIDATES = 128
"""Values drawn in the levels of an attribute of more values, where these are fewer levels."""

_DRAWN = 32
"""Candidates of an attribute of more levels, drawn from its probabilities."""


class Evidence(Protocol):
    """A condition on rows, as a likelihood of each level."""

    def likelihood(self, position: int, nodes: Integers, levels: Integers) -> Floats | None:
        """The probability (c,) of the condition, given levels (c,) that follow ``nodes``.

        Shape of ``nodes``: (c, feasible sets at the position). None if the condition always holds.
        """
        ...

    def restrict(self, batch: Batch, names: Sequence[str]) -> None:
        """Move the quantiles of attributes that are resolved next to where the condition holds."""
        ...


class ImportanceWeight(Protocol):
    """Importance weights of the levels and values of a batch's rows, row by row."""

    def factors(self, name: str) -> Floats | None:
        """Factors (n, levels) on the probabilities of an attribute; None if there are none."""
        ...

    def quantiles(self, name: str, levels: Integers, rng: np.random.Generator) -> Floats | None:
        """Quantiles (n,) of an attribute inside its levels (n,); None if they are even."""
        ...


class PairwiseChecker(Protocol):
    """The rows before, against which some attributes are drawn row by row."""

    def applies(self, position: int) -> bool:
        """Whether the attribute at a position is drawn row by row."""
        ...

    def choose(self, position: int, candidates: Candidates, batch: Batch) -> Integers:
        """The candidate (n,) of each row; -1 if all violate a hard rule or the row is dead."""
        ...


@dataclass(frozen=True)
class Candidates:
    """Levels and values that rows may take, with their log-probabilities; each (n, d)."""

    levels: Integers
    codes: Integers
    logs: Floats


@dataclass(frozen=True)
class AncestralSampler:
    """Draws batches of rows from a chain, attribute by attribute, inside the feasible sets."""

    chain: ConstrainedChain
    evidence: Evidence | None = None
    checker: PairwiseChecker | None = None
    importance: ImportanceWeight | None = None

    def draw(self, rows: int, rng: np.random.Generator) -> Batch:
        """A batch of rows: bins, values, and which of them have no dead end."""
        batch = Batch.start(self.chain, rows, rng)
        for position in range(len(self.chain.sequence)):
            self.extend(batch, position)
        return batch

    def extend(self, batch: Batch, position: int) -> None:
        """Draw one more attribute of a batch."""
        # the conditional of the attribute, given those drawn before it
        probabilities = self.chain.conditional(position, batch.levels[:, :position])
        factors = (
            self.importance.factors(self.chain.sequence[position]) if self.importance else None
        )
        if factors is not None:
            probabilities = probabilities * factors
        step = _AttributeStep(self, batch, position, probabilities)
        checked = self.checker is not None and self.checker.applies(position)
        self.advance(batch, position, step.choose() if checked else step.levels())

    def advance(self, batch: Batch, position: int, levels: Integers) -> None:
        """Set the levels (n,) of an attribute, and resolve the values known by then."""
        batch.levels[:, position] = levels
        # each set alone allows some level of every node, but several together may allow none
        for index, depth in self.chain.sets_at[position]:
            batch.end(position, ~self.chain.tries[index].allows(depth, batch.nodes[index], levels))
            batch.nodes[index] = self.chain.tries[index].step(depth, batch.nodes[index], levels)
        # a value is known once the last attribute of the sets that narrow it is drawn
        resolved = [
            name
            for earlier, name in enumerate(self.chain.sequence[: position + 1])
            if self.chain.resolved_at[earlier] == position and name not in batch.codes
        ]
        self._weigh_quantiles(batch, resolved)
        if self.evidence is not None:
            self.evidence.restrict(batch, resolved)
        batch.codes |= {name: self.chain.refine(batch, name) for name in resolved}

    def _weigh_quantiles(self, batch: Batch, names: Sequence[str]) -> None:
        for name in names:
            if self.importance is not None and not self.chain.has_box(name):
                levels = batch.levels[:, self.chain.sequence.index(name)]
                weighed = self.importance.quantiles(name, levels, batch.rng)
                batch.quantiles[name] = batch.quantiles[name] if weighed is None else weighed


@dataclass(frozen=True)
class _AttributeStep:
    """One attribute of one batch."""

    draw: AncestralSampler
    batch: Batch
    position: int
    probabilities: Probabilities

    def levels(self) -> Integers:
        """A level for each row (n,), with its probability inside the feasible sets."""
        if len(self.probabilities) == 1:
            return self._from_options()
        return self._below(np.cumsum(self._weights(), axis=1))

    def _below(self, heights: Floats) -> Integers:
        """A level for each row (n,), by cumulative weights (n, size)."""
        target = self.batch.rng.random(len(heights)) * heights[:, -1]
        return np.minimum((heights <= target[:, None]).sum(1), heights.shape[1] - 1)

    def choose(self) -> Integers:
        """A level for each row (n,), chosen row by row against the rows before.

        Its value is resolved too.
        """
        name, checker = self.draw.chain.sequence[self.position], self.draw.checker
        assert checker is not None
        # Algorithm 3, lines 7 to 10: candidates are values, of which the checker draws by penalty
        candidates = self._candidates(self.draw.chain.bins[name])
        choice = checker.choose(self.position, candidates, self.batch)
        self.batch.end(self.position, choice < 0)
        rows = np.arange(len(choice)), np.maximum(choice, 0)
        self.batch.codes[name] = candidates.codes[rows]
        return candidates.levels[rows]

    def _candidates(self, bins: Histogram) -> Candidates:
        """All values; of more, some of each level; of many levels, values that are drawn."""
        size = bins.size
        if bins.column.size <= _ENUMERATED:
            codes = np.arange(bins.column.size)
            levels = bins.index(codes)
            weights = self._weights()[:, levels] * bins.value_shares
            return self._weighed(levels, codes, weights)
        if size <= _ENUMERATED:
            each = max(_CANDIDATES // size, 1)
            levels = np.repeat(np.arange(size), each)
            codes = self._spread(bins, levels, np.tile(np.arange(each), size) / each)
            return self._weighed(levels, codes, self._weights()[:, levels])
        draw = self._drawer()
        drawn = np.stack([draw() for _ in range(_DRAWN)], axis=1)
        codes = self._spread(bins, drawn, np.arange(_DRAWN) / _DRAWN)
        return self._weighed(drawn, codes, np.ones((1, _DRAWN)))

    def _spread(self, bins: Histogram, levels: Integers, apart: Floats) -> Integers:
        """Values (n, d) in levels, of shape (d,) or (n, d), whose quantiles lie (d,) ``apart``."""
        quantiles = (self.batch.quantiles[bins.name][:, None] + apart) % 1.0
        wide = np.broadcast_to(levels, quantiles.shape)
        return bins.refine(wide.ravel(), quantiles.ravel()).reshape(quantiles.shape)

    def _weighed(self, levels: Integers, codes: Integers, weights: Floats) -> Candidates:
        """Candidates of weights of shape (n, d) or (1, d)."""
        shape = self.batch.rows, levels.shape[-1]
        logs = np.full(weights.shape, -np.inf)
        np.log(weights, out=logs, where=weights > 0)
        return Candidates(*(np.broadcast_to(each, shape) for each in (levels, codes, logs)))

    def _drawer(self) -> Callable[[], Integers]:
        """What draws a level for each row (n,), as often as it is called."""
        if len(self.probabilities) == 1:
            return self._from_options
        heights = np.cumsum(self._weights(), axis=1)
        return lambda: self._below(heights)

    def _from_options(self) -> Integers:
        # all rows have the same probabilities: weights are of kinds, and rows pick among them
        kind, joint = self._kinds()
        owner, level = self._children(joint)
        shares = self.probabilities[0].astype(np.float64)
        weight = _normalised(
            shares[level], level, owner, len(joint), shares, self.draw.chain.null(self.position)
        )
        likelihood = self._likelihood(joint, owner, level)
        if likelihood is not None:
            weight = weight * likelihood
            # what a kind's weights sum to is the condition's probability: importance weight
            self.batch.weight *= np.bincount(owner, weight, len(joint))[kind]
        return _pick(owner, level, weight, kind, self.batch.rng)

    def _weights(self) -> Floats:
        """Weights of all levels (n, size) in feasible sets, times the condition's likelihood."""
        weights = self.probabilities.astype(np.float64)
        if not self.draw.chain.sets_at[self.position] and self.draw.evidence is None:
            return weights
        kind, joint = self._kinds()
        owner, level = self._children(joint)
        allowed = np.zeros((len(joint), weights.shape[1]))
        allowed[owner, level] = 1.0
        # levels that the model all but excludes are drawn where the sets allow no others
        weights = (weights + TINY) * allowed[kind]
        _keep_missing(weights, self.probabilities, self.draw.chain.null(self.position))
        likelihood = self._likelihood(joint, owner, level)
        if likelihood is not None:
            allowed[owner, level] = likelihood
            whole = weights.sum(1)
            weights *= allowed[kind]
            self.batch.weight *= weights.sum(1) / np.where(whole > 0, whole, 1.0)
        return weights

    def _kinds(self) -> tuple[Integers, Integers]:
        """A kind (n,) for rows at the same nodes of all sets; these nodes (kinds, sets)."""
        nodes = [self.batch.nodes[index] for index, _ in self.draw.chain.sets_at[self.position]]
        if not nodes:
            return np.zeros(self.batch.rows, dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
        together = reduce(_joint_number, nodes)
        _, first, kind = np.unique(together, return_index=True, return_inverse=True)
        return kind, np.stack([node[first] for node in nodes], axis=1)

    def _children(self, joint: Integers) -> tuple[Integers, Integers]:
        """Every level that can follow a kind in all sets, from nodes (kinds, sets).

        Kinds (c,), increasing, and levels (c,).
        """
        tries = [
            (self.draw.chain.tries[index], depth)
            for index, depth in self.draw.chain.sets_at[self.position]
        ]
        if not tries:
            size = self.probabilities.shape[1]
            return np.zeros(size, dtype=np.int64), np.arange(size)
        # children of the set that has fewest at a node, filtered by the other sets
        fertility = np.stack(
            [trie.fertility(depth, joint[:, index]) for index, (trie, depth) in enumerate(tries)],
            axis=1,
        )
        parts = [
            self._children_by(index, np.flatnonzero(fertility.argmin(1) == index), joint)
            for index in range(len(tries))
        ]
        owner, level = (np.concatenate(side) for side in zip(*parts, strict=True))
        order = np.argsort(owner, kind="stable")
        return owner[order], level[order]

    def _children_by(
        self, first: int, kinds: Integers, joint: Integers
    ) -> tuple[Integers, Integers]:
        tries = [
            (self.draw.chain.tries[index], depth)
            for index, depth in self.draw.chain.sets_at[self.position]
        ]
        trie, depth = tries[first]
        position, level = trie.children(depth, joint[kinds, first])
        owner = kinds[position]
        for index, (further, other_depth) in enumerate(tries):
            if index != first:
                both = further.allows(other_depth, joint[owner, index], level)
                owner, level = owner[both], level[both]
        return owner, level

    def _likelihood(self, joint: Integers, owner: Integers, level: Integers) -> Floats | None:
        evidence = self.draw.evidence
        return None if evidence is None else evidence.likelihood(self.position, joint[owner], level)


def _normalised(
    weight: Floats, level: Integers, owner: Integers, kinds: int, shares: Floats, null: int | None
) -> Floats:
    """Weights (c,) that sum to one for each kind, equal where all are 0.

    The missing level keeps its share.
    """
    if null is not None:
        missing = level == null
        rest = np.bincount(owner, weight * ~missing, kinds)[owner]
        adjusted = missing & (rest > 0)
        weight = np.where(adjusted, rest * _odds(shares[null]), weight)
    total = np.bincount(owner, weight, kinds)[owner]
    weight = np.where(total > 0, weight, 1.0)
    return weight / np.bincount(owner, weight, kinds)[owner]


def _keep_missing(weights: Floats, probabilities: Probabilities, null: int | None) -> None:
    """Let the missing level, where it is allowed, keep its probability among the others."""
    if null is None:
        return
    rest = weights.sum(1) - weights[:, null]
    adjusted = (weights[:, null] > 0) & (rest > 0)
    weights[:, null] = np.where(adjusted, rest * _odds(probabilities[:, null]), weights[:, null])


def _odds(probability: Probabilities) -> Floats:
    # in float32 the bound would be 1
    clipped = np.clip(np.asarray(probability, dtype=np.float64), 0.0, 1.0 - 1e-9)
    return clipped / (1.0 - clipped)


def _pick(
    owner: Integers, level: Integers, weight: Floats, kind: Integers, rng: np.random.Generator
) -> Integers:
    """One level for each row (n,) of a kind (n,), by the weights of the kind; 0 if it has none."""
    kinds = np.arange(int(kind.max(initial=-1)) + 2)
    # cumulative weights over all kinds; a row draws in its own kind's part [begin, end)
    edges = np.searchsorted(owner, kinds)
    heights = np.append(0.0, np.cumsum(weight))
    begin, end = edges[kind], edges[kind + 1]
    target = heights[begin] + rng.random(len(kind)) * (heights[end] - heights[begin])
    slots = np.clip(
        np.searchsorted(heights, target, side="right") - 1, begin, np.maximum(end - 1, begin)
    )
    return np.where(begin == end, 0, np.append(level, 0)[slots])


def _joint_number(key: Integers, node: Integers) -> Integers:
    """A number (n,) for each pair of a key and a node, both (n,); of no rows as well."""
    return np.unique(key, return_inverse=True)[1] * (node.max(initial=0) + 1) + node
