"""A tuple model inside the feasible sets of hard constraints, and batches of rows drawn from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.feasible_sets.feasible_set import FeasibleSet, Trie

_BLOCK_ROWS = 8192
"""Rows whose probabilities are computed at a time: they fit a processor's cache."""

Probabilities = NDArray[np.floating]


class TupleModel(Protocol):
    """A chain of conditionals over bins, in a schema sequence."""

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``position``, given bins (n, position) before it.

        Shape (n, size); (1, size) when they do not depend on the context.
        """
        ...


@runtime_checkable
class JointModel(Protocol):
    """A tuple model that knows joint shares without drawing rows."""

    def joint_shares(self, places: Sequence[int]) -> Floats | None:
        """Shares of the joint bins of the attributes at some positions, flattened.

        None if there are too many to compute.
        """
        ...


@dataclass(frozen=True)
class ConstrainedChain:
    """A tuple model over bins, in a schema sequence, inside feasible sets."""

    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    model: TupleModel
    feasible_sets: tuple[FeasibleSet, ...] = ()

    @cached_property
    def tries(self) -> tuple[Trie, ...]:
        """The feasible sets as tries, one level per attribute."""
        return tuple(
            Trie(s, [self.bins[name].size for name in s.attributes]) for s in self.feasible_sets
        )

    @cached_property
    def sets_at(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each position, the feasible sets of its attribute, and its depth in each."""
        return tuple(
            tuple(
                (index, s.attributes.index(name))
                for index, s in enumerate(self.feasible_sets)
                if name in s.attributes
            )
            for name in self.sequence
        )

    @cached_property
    def resolved_at(self) -> tuple[int, ...]:
        """For each attribute of the sequence, the position after which its value is known.

        Its own position, or the last one of the feasible sets whose boxes narrow its values.
        """
        last = [max(map(self.sequence.index, s.attributes)) for s in self.feasible_sets]
        boxed = [
            [last[index] for index, s in enumerate(self.feasible_sets) if name in s.boxes]
            for name in self.sequence
        ]
        return tuple(max([position, *places]) for position, places in enumerate(boxed))

    def has_box(self, name: str) -> bool:
        """Whether a feasible set narrows the values of an attribute."""
        return any(name in feasible_set.boxes for feasible_set in self.feasible_sets)

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """The model's probabilities, computed block by block."""
        begins = range(0, max(len(context), 1), _BLOCK_ROWS)
        blocks = [context[begin : begin + _BLOCK_ROWS] for begin in begins]
        first = self.model.conditional(position, blocks[0])
        if len(first) == 1:
            return first
        return np.concatenate(
            [first, *(self.model.conditional(position, block) for block in blocks[1:])]
        )

    def null(self, position: int) -> int | None:
        """The missing level of the attribute at a position."""
        return self.bins[self.sequence[position]].levels.null

    def refine(self, batch: Batch, name: str) -> Integers:
        """The fine codes (n,) of an attribute at the batch's quantiles, in its level or box."""
        if self.has_box(name):
            return self.bins[name].refine_box(self.box(name, batch.nodes), batch.quantiles[name])
        return self.bins[name].refine(
            batch.levels[:, self.sequence.index(name)], batch.quantiles[name]
        )

    def box(self, name: str, leaves: Sequence[Integers]) -> Integers:
        """The fine codes (n, 2) to which sets narrow an attribute, from their leaves (n,)."""
        ranges = [
            s.boxes[name][np.minimum(leaf, len(s.boxes[name]) - 1)]
            for s, leaf in zip(self.feasible_sets, leaves, strict=True)
            if name in s.boxes
        ]
        return reduce(_intersect, ranges)


@dataclass(frozen=True)
class _Flattened:
    """A tuple model mixed with even probabilities at some places."""

    model: TupleModel
    flatness: float
    places: frozenset[int]

    def conditional(self, position: int, context: Integers) -> Probabilities:
        given = self.model.conditional(position, context)
        if position not in self.places:
            return given
        return (1.0 - self.flatness) * given + self.flatness / given.shape[1]


def flatten_chain(
    chain: ConstrainedChain, flatness: float, names: Collection[str]
) -> ConstrainedChain:
    """The chain with a share ``flatness`` of even probabilities of the named attributes.

    Both of bins and of values in them, for rows for which the model leaves no room: every value
    that the feasible sets allow can then be drawn. Values in boxes of feasible sets are unchanged:
    rows keep a rule on pairs only if all are refined alike.
    """
    bins = {
        name: _evened(histogram, flatness)
        if name in names and not chain.has_box(name)
        else histogram
        for name, histogram in chain.bins.items()
    }
    places = frozenset(index for index, name in enumerate(chain.sequence) if name in names)
    return replace(chain, bins=bins, model=_Flattened(chain.model, flatness, places))


def _evened(bins: Histogram, flatness: float) -> Histogram:
    even = bins.widths / bins.widths.sum()
    return replace(bins, shares=(1.0 - flatness) * bins.shares + flatness * even)


def _intersect(first: Integers, second: Integers) -> Integers:
    start = np.maximum(first[:, 0], second[:, 0])
    return np.stack([start, np.maximum(np.minimum(first[:, 1], second[:, 1]), start + 1)], axis=1)


@dataclass
class Batch:
    """Rows being drawn.

    ``levels`` (n, k); ``nodes``, one (n,) for each feasible set; ``quantiles`` and fine ``codes``
    (n,) by name; ``alive`` (n,), False for rows with a dead end; ``reached`` (n,) the place of the
    dead end; ``weight`` (n,) the probability of the condition so far.
    """

    levels: Integers
    nodes: list[Integers]
    quantiles: dict[str, Floats]
    rng: np.random.Generator
    codes: dict[str, Integers] = field(default_factory=dict)
    alive: Booleans = field(init=False)
    reached: Integers = field(init=False)
    weight: Floats = field(init=False)

    def __post_init__(self) -> None:
        rows, places = self.levels.shape
        self.alive = np.ones(rows, dtype=bool)
        self.reached = np.full(rows, places, dtype=np.int64)
        self.weight = np.ones(rows)

    @classmethod
    def start(cls, chain: ConstrainedChain, rows: int, rng: np.random.Generator) -> Batch:
        """Rows without any attribute yet."""
        any_will_do = np.zeros(rows)
        quantiles = {
            name: rng.random(rows) if chain.bins[name].only_values is None else any_will_do
            for name in chain.sequence
        }
        for coupling in (
            coupling for feasible_set in chain.feasible_sets for coupling in feasible_set.couplings
        ):
            first = quantiles[coupling.first]
            quantiles[coupling.second] = first if coupling.sign > 0 else 1.0 - first
        levels = np.zeros((rows, len(chain.sequence)), dtype=np.int64)
        return cls(
            levels, [np.zeros(rows, dtype=np.int64) for _ in chain.feasible_sets], quantiles, rng
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.levels)

    def end(self, position: int, dead: Booleans) -> None:
        """Mark rows (n,) that have a dead end at a place."""
        self.reached[dead & self.alive] = position
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
