"""Drawing groups and values of a batch of rows, attribute by attribute, inside the supports of hard constraints.

Source: Kamino Algorithm 3, with supports in place of counting violations where a constraint has
    one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Integers
from cloister.constraints.supports import Support, Trie
from models.discretization.bins import Bins

BLOCK = 8192
ENUMERATED = 256
CANDIDATES = 32

Probabilities = NDArray[np.floating]
Numbers = NDArray[np.float64]


class TupleModel(Protocol):
    """A chain of conditionals over groups, in a schema sequence."""

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``, given groups (n, place) of all before it.

        Shape (n, size); (1, size) when they do not depend on the context.
        """
        ...


@dataclass(frozen=True)
class Chain:
    """A tuple model over groups, in a schema sequence, inside supports."""

    sequence: tuple[str, ...]
    groups: Mapping[str, Bins]
    model: TupleModel
    supports: tuple[Support, ...] = ()

    @cached_property
    def tries(self) -> tuple[Trie, ...]:
        """The supports, to be walked attribute by attribute."""
        return tuple(
            Trie(s, [self.groups[name].size for name in s.attributes]) for s in self.supports
        )

    @cached_property
    def supports_at(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each place, the supports that its attribute stands in, and at which depth of each."""
        return tuple(
            tuple(
                (at, s.attributes.index(name))
                for at, s in enumerate(self.supports)
                if name in s.attributes
            )
            for name in self.sequence
        )

    @cached_property
    def resolved_at(self) -> tuple[int, ...]:
        """For each attribute of the sequence, the place after which its value is known: its own, but inside a box."""
        last = [max(map(self.sequence.index, s.attributes)) for s in self.supports]
        boxed = [
            [last[at] for at, s in enumerate(self.supports) if name in s.boxes]
            for name in self.sequence
        ]
        return tuple(max([place, *places]) for place, places in enumerate(boxed))

    def boxed(self, name: str) -> bool:
        """Whether a support narrows the values of an attribute."""
        return any(name in support.boxes for support in self.supports)

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """The model's probabilities, asked for in blocks that stay in the processor's cache."""
        blocks = [context[begin : begin + BLOCK] for begin in range(0, max(len(context), 1), BLOCK)]
        first = self.model.conditional(place, blocks[0])
        if len(first) == 1:
            return first
        return np.concatenate(
            [first, *(self.model.conditional(place, block) for block in blocks[1:])]
        )

    def null(self, place: int) -> int | None:
        """The missing level of the attribute at a place."""
        return self.groups[self.sequence[place]].levels.null

    def refined(self, batch: Batch, name: str) -> Integers:
        """The fine codes (n,) of an attribute whose level and box are known, at the batch's quantiles."""
        if self.boxed(name):
            return self.groups[name].refine_box(self.box(name, batch.nodes), batch.quantiles[name])
        return self.groups[name].refine(
            batch.levels[:, self.sequence.index(name)], batch.quantiles[name]
        )

    def box(self, name: str, leaves: Sequence[Integers]) -> Integers:
        """The fine codes (n, 2) to which supports narrow an attribute, from their leaves (n,)."""
        found = [
            s.boxes[name][np.minimum(leaf, len(s.boxes[name]) - 1)]
            for s, leaf in zip(self.supports, leaves, strict=True)
            if name in s.boxes
        ]
        return reduce(_meet, found)


def _meet(first: Integers, second: Integers) -> Integers:
    start = np.maximum(first[:, 0], second[:, 0])
    return np.stack([start, np.maximum(np.minimum(first[:, 1], second[:, 1]), start + 1)], axis=1)


class Evidence(Protocol):
    """What a condition leaves of each level."""

    def likelihood(self, place: int, nodes: Integers, levels: Integers) -> Numbers | None:
        """The share left (c,) of levels (c,) that follow nodes (c, supports met at the place).

        None if all is.
        """
        ...

    def restrict(self, batch: Batch, names: Sequence[str]) -> None:
        """Move the quantiles of attributes that are about to be settled to where the condition holds."""
        ...


class PairwiseChecker(Protocol):
    """Rows before, against which some attributes are drawn row by row."""

    def applies(self, place: int) -> bool:
        """Whether the attribute at a place is drawn row by row."""
        ...

    def choose(self, place: int, candidates: Candidates, batch: Batch) -> Integers:
        """The candidate (n,) of each row; -1 where all violate a hard constraint or the row is dead."""
        ...


@dataclass(frozen=True)
class Candidates:
    """Levels and values that rows may take: ``levels``, ``codes`` and log-probabilities ``logs``, each (n, d)."""

    levels: Integers
    codes: Integers
    logs: Numbers


@dataclass
class Batch:
    """Rows being drawn: levels (n, k), node of each support (n,), quantiles and fine codes (n,) by name.

    ``alive`` (n,) tells rows without a dead end, ``reached`` (n,) the place of the dead end,
    ``weight`` (n,) the probability of the condition so far.
    """

    levels: Integers
    nodes: list[Integers]
    quantiles: dict[str, Numbers]
    rng: np.random.Generator
    codes: dict[str, Integers] = field(default_factory=dict)
    alive: Booleans = field(init=False)
    reached: Integers = field(init=False)
    weight: Numbers = field(init=False)

    def __post_init__(self) -> None:
        rows, places = self.levels.shape
        self.alive = np.ones(rows, dtype=bool)
        self.reached = np.full(rows, places, dtype=np.int64)
        self.weight = np.ones(rows)

    @classmethod
    def start(cls, chain: Chain, rows: int, rng: np.random.Generator) -> Batch:
        """Rows of which nothing is known yet."""
        quantiles = {name: rng.random(rows) for name in chain.sequence}
        for coupling in (coupling for support in chain.supports for coupling in support.couplings):
            first = quantiles[coupling.first]
            quantiles[coupling.second] = first if coupling.sign > 0 else 1.0 - first
        levels = np.zeros((rows, len(chain.sequence)), dtype=np.int64)
        return cls(levels, [np.zeros(rows, dtype=np.int64) for _ in chain.supports], quantiles, rng)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.levels)

    def end(self, place: int, dead: Booleans) -> None:
        """Mark rows (n,) that met a dead end at a place."""
        self.reached[dead & self.alive] = place
        self.alive &= ~dead

    def take(self, rows: Integers) -> Batch:
        """Some rows, by number, all with the same weight."""
        quantiles = {name: values[rows] for name, values in self.quantiles.items()}
        codes = {name: values[rows] for name, values in self.codes.items()}
        taken = Batch(
            self.levels[rows], [node[rows] for node in self.nodes], quantiles, self.rng, codes
        )
        taken.alive, taken.reached = self.alive[rows], self.reached[rows]
        return taken


@dataclass(frozen=True)
class AncestralSampler:
    """Draws batches of rows from a chain, attribute by attribute, inside the supports."""

    chain: Chain
    evidence: Evidence | None = None
    checker: PairwiseChecker | None = None

    def run(self, rows: int, rng: np.random.Generator) -> Batch:
        """A batch of rows: groups, values, and which of them met no dead end."""
        batch = Batch.start(self.chain, rows, rng)
        for place in range(len(self.chain.sequence)):
            self.extend(batch, place)
        return batch

    def extend(self, batch: Batch, place: int) -> None:
        """Draw one more attribute of a batch."""
        probabilities = self.chain.conditional(place, batch.levels[:, :place])
        step = Step(self, batch, place, probabilities)
        watched = self.checker is not None and self.checker.applies(place)
        levels = step.watched() if watched else step.levels()
        batch.levels[:, place] = levels
        for at, depth in self.chain.supports_at[place]:
            batch.end(place, ~self.chain.tries[at].allows(depth, batch.nodes[at], levels))
            batch.nodes[at] = self.chain.tries[at].step(depth, batch.nodes[at], levels)
        settled = [
            name
            for other, name in enumerate(self.chain.sequence[: place + 1])
            if self.chain.resolved_at[other] == place and name not in batch.codes
        ]
        if self.evidence is not None:
            self.evidence.restrict(batch, settled)
        batch.codes |= {name: self.chain.refined(batch, name) for name in settled}


@dataclass(frozen=True)
class Step:
    """One attribute of one batch."""

    draw: AncestralSampler
    batch: Batch
    place: int
    probabilities: Probabilities

    def levels(self) -> Integers:
        """A level for each row (n,), in proportion to its probability inside the supports."""
        if len(self.probabilities) == 1:
            return self._from_options()
        weights = self._weights()
        heights = np.cumsum(weights, axis=1)
        target = self.batch.rng.random(len(weights)) * heights[:, -1]
        return np.minimum((heights <= target[:, None]).sum(1), weights.shape[1] - 1)

    def watched(self) -> Integers:
        """A level for each row (n,), chosen row by row against the rows before.

        The value is settled too.
        """
        name, checker = self.draw.chain.sequence[self.place], self.draw.checker
        assert checker is not None
        levels, logs = self._candidates()
        quantiles = np.repeat(self.batch.quantiles[name], levels.shape[1])
        codes = self.draw.chain.groups[name].refine(levels.ravel(), quantiles).reshape(levels.shape)
        choice = checker.choose(self.place, Candidates(levels, codes, logs), self.batch)
        self.batch.end(self.place, choice < 0)
        rows = np.arange(len(choice)), np.maximum(choice, 0)
        self.batch.codes[name] = codes[rows]
        return levels[rows]

    def _candidates(self) -> tuple[Integers, Numbers]:
        rows, size = self.batch.rows, self.probabilities.shape[1]
        if size > ENUMERATED:
            return np.stack([self.levels() for _ in range(CANDIDATES)], axis=1), np.zeros(
                (rows, CANDIDATES)
            )
        weights = np.broadcast_to(self._weights(), (rows, size))
        logs = np.full(weights.shape, -np.inf)
        np.log(weights, out=logs, where=weights > 0)
        return np.broadcast_to(np.arange(size), (rows, size)), logs

    def _from_options(self) -> Integers:
        kind, joint = self._kinds()
        owner, level = self._children(joint)
        shares = self.probabilities[0].astype(np.float64)
        weight = _normalised(
            shares[level], level, owner, len(joint), shares, self.draw.chain.null(self.place)
        )
        left = self._left(joint, owner, level)
        if left is not None:
            weight = weight * left
            self.batch.weight *= np.bincount(owner, weight, len(joint))[kind]
        return _pick(owner, level, weight, kind, self.batch.rng)

    def _weights(self) -> Numbers:
        """Weights of all levels (n, size) inside the supports, and what the condition leaves of them."""
        weights = self.probabilities.astype(np.float64)
        if not self.draw.chain.supports_at[self.place] and self.draw.evidence is None:
            return weights
        kind, joint = self._kinds()
        owner, level = self._children(joint)
        allowed = np.zeros((len(joint), weights.shape[1]))
        allowed[owner, level] = 1.0
        weights = (weights + 1e-300) * allowed[kind]
        _hold_missing(weights, self.probabilities, self.draw.chain.null(self.place))
        left = self._left(joint, owner, level)
        if left is not None:
            allowed[owner, level] = left
            whole = weights.sum(1)
            weights *= allowed[kind]
            self.batch.weight *= weights.sum(1) / np.where(whole > 0, whole, 1.0)
        return weights

    def _kinds(self) -> tuple[Integers, Integers]:
        """Which rows (n,) stand at the same nodes of all supports met here, and these nodes (kinds, supports)."""
        met = [self.batch.nodes[at] for at, _ in self.draw.chain.supports_at[self.place]]
        if not met:
            return np.zeros(self.batch.rows, dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
        together = reduce(
            lambda key, node: np.unique(key, return_inverse=True)[1] * (node.max() + 1) + node, met
        )
        _, first, kind = np.unique(together, return_index=True, return_inverse=True)
        return kind, np.stack([node[first] for node in met], axis=1)

    def _children(self, joint: Integers) -> tuple[Integers, Integers]:
        """Every level that can follow a kind (kinds, supports) in all supports.

        Kinds (c,) rising, and levels (c,).
        """
        met = [
            (self.draw.chain.tries[at], depth)
            for at, depth in self.draw.chain.supports_at[self.place]
        ]
        if not met:
            size = self.probabilities.shape[1]
            return np.zeros(size, dtype=np.int64), np.arange(size)
        fertility = np.stack(
            [trie.fertility(depth, joint[:, at]) for at, (trie, depth) in enumerate(met)], axis=1
        )
        parts = [
            self._children_by(at, np.flatnonzero(fertility.argmin(1) == at), joint)
            for at in range(len(met))
        ]
        owner, level = (np.concatenate(side) for side in zip(*parts, strict=True))
        order = np.argsort(owner, kind="stable")
        return owner[order], level[order]

    def _children_by(
        self, first: int, kinds: Integers, joint: Integers
    ) -> tuple[Integers, Integers]:
        met = [
            (self.draw.chain.tries[at], depth)
            for at, depth in self.draw.chain.supports_at[self.place]
        ]
        trie, depth = met[first]
        place, level = trie.children(depth, joint[kinds, first])
        owner = kinds[place]
        for at, (other, other_depth) in enumerate(met):
            if at != first:
                both = other.allows(other_depth, joint[owner, at], level)
                owner, level = owner[both], level[both]
        return owner, level

    def _left(self, joint: Integers, owner: Integers, level: Integers) -> Numbers | None:
        evidence = self.draw.evidence
        return None if evidence is None else evidence.likelihood(self.place, joint[owner], level)


def _normalised(
    weight: Numbers, level: Integers, owner: Integers, kinds: int, shares: Numbers, null: int | None
) -> Numbers:
    """Weights (c,) that sum to one for each kind; the missing level keeps its share.

    Even where none has any.
    """
    if null is not None:
        missing = level == null
        others = np.bincount(owner, weight * ~missing, kinds)[owner]
        held = missing & (others > 0)
        weight = np.where(held, others * _odds(shares[null]), weight)
    total = np.bincount(owner, weight, kinds)[owner]
    weight = np.where(total > 0, weight, 1.0)
    return weight / np.bincount(owner, weight, kinds)[owner]


def _hold_missing(weights: Numbers, probabilities: Probabilities, null: int | None) -> None:
    """Let the missing level, where it is allowed, keep its probability, however few others are."""
    if null is None:
        return
    others = weights.sum(1) - weights[:, null]
    held = (weights[:, null] > 0) & (others > 0)
    weights[:, null] = np.where(held, others * _odds(probabilities[:, null]), weights[:, null])


def _odds(probability: Probabilities) -> Numbers:
    clipped = np.clip(probability, 0.0, 1.0 - 1e-9)
    return np.asarray(clipped / (1.0 - clipped), dtype=np.float64)


def _pick(
    owner: Integers, level: Integers, weight: Numbers, kind: Integers, rng: np.random.Generator
) -> Integers:
    """One level for each row (n,) of a kind (n,), in proportion to the weights of the kind; 0 where there is none."""
    kinds = np.arange(int(kind.max(initial=-1)) + 2)
    edges = np.searchsorted(owner, kinds)
    heights = np.append(0.0, np.cumsum(weight))
    begin, end = edges[kind], edges[kind + 1]
    target = heights[begin] + rng.random(len(kind)) * (heights[end] - heights[begin])
    found = np.clip(
        np.searchsorted(heights, target, side="right") - 1, begin, np.maximum(end - 1, begin)
    )
    return np.where(begin == end, 0, np.append(level, 0)[found])
