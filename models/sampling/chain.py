"""A tuple model inside the supports of hard constraints, and batches of rows drawn from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.constraints.supports import Support, Trie
from cloister.models.core.bins import Histogram

_BLOCK_ROWS = 8192
"""Rows whose probabilities are computed at a time, so that they stay in the processor's cache."""

Probabilities = NDArray[np.floating]


class TupleModel(Protocol):
    """A chain of conditionals over bins, in a schema sequence."""

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``, given bins (n, place) of all before it.

        Shape (n, size); (1, size) when they do not depend on the context.
        """
        ...


@runtime_checkable
class JointModel(Protocol):
    """A tuple model that knows joint shares without drawing rows."""

    def joint_shares(self, places: Sequence[int]) -> Floats | None:
        """Shares of the joint bins of the attributes at some places, flattened.

        None if they are too many to compute.
        """
        ...


@dataclass(frozen=True)
class ConstrainedChain:
    """A tuple model over bins, in a schema sequence, inside supports."""

    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    model: TupleModel
    supports: tuple[Support, ...] = ()

    @cached_property
    def tries(self) -> tuple[Trie, ...]:
        """The supports as tries, one level an attribute."""
        return tuple(
            Trie(s, [self.bins[name].size for name in s.attributes]) for s in self.supports
        )

    @cached_property
    def supports_at(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each place, the supports that its attribute is in, and its depth in each."""
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
        """For each attribute of the sequence, the place after which its value is known.

        That is its own place, or the last one of the supports whose boxes narrow its values.
        """
        last = [max(map(self.sequence.index, s.attributes)) for s in self.supports]
        boxed = [
            [last[at] for at, s in enumerate(self.supports) if name in s.boxes]
            for name in self.sequence
        ]
        return tuple(max([place, *places]) for place, places in enumerate(boxed))

    def has_box(self, name: str) -> bool:
        """Whether a support narrows the values of an attribute."""
        return any(name in support.boxes for support in self.supports)

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """The model's probabilities, computed block by block."""
        begins = range(0, max(len(context), 1), _BLOCK_ROWS)
        blocks = [context[begin : begin + _BLOCK_ROWS] for begin in begins]
        first = self.model.conditional(place, blocks[0])
        if len(first) == 1:
            return first
        return np.concatenate(
            [first, *(self.model.conditional(place, block) for block in blocks[1:])]
        )

    def null(self, place: int) -> int | None:
        """The missing level of the attribute at a place."""
        return self.bins[self.sequence[place]].levels.null

    def refine(self, batch: Batch, name: str) -> Integers:
        """The fine codes (n,) of an attribute at the batch's quantiles, in its level or box."""
        if self.has_box(name):
            return self.bins[name].refine_box(self.box(name, batch.nodes), batch.quantiles[name])
        return self.bins[name].refine(
            batch.levels[:, self.sequence.index(name)], batch.quantiles[name]
        )

    def box(self, name: str, leaves: Sequence[Integers]) -> Integers:
        """The fine codes (n, 2) to which supports narrow an attribute, from their leaves (n,)."""
        found = [
            s.boxes[name][np.minimum(leaf, len(s.boxes[name]) - 1)]
            for s, leaf in zip(self.supports, leaves, strict=True)
            if name in s.boxes
        ]
        return reduce(_intersect, found)


@dataclass(frozen=True)
class _Flattened:
    """A tuple model mixed with even probabilities at some places."""

    model: TupleModel
    flatness: float
    places: frozenset[int]

    def conditional(self, place: int, context: Integers) -> Probabilities:
        given = self.model.conditional(place, context)
        if place not in self.places:
            return given
        return (1.0 - self.flatness) * given + self.flatness / given.shape[1]


def flatten_chain(
    chain: ConstrainedChain, flatness: float, names: Collection[str]
) -> ConstrainedChain:
    """The chain with a share ``flatness`` of even probabilities of the named attributes.

    Both of bins and of values in them. For rows that the model leaves no room for: no value of
    these that the supports allow is out of reach. Values in boxes of supports stay as they are:
    rows keep a rule on pairs only if all are refined alike.
    """
    bins = {
        name: _evened(own, flatness) if name in names and not chain.has_box(name) else own
        for name, own in chain.bins.items()
    }
    places = frozenset(at for at, name in enumerate(chain.sequence) if name in names)
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

    ``levels`` (n, k); ``nodes``, one (n,) for each support; ``quantiles`` and fine ``codes`` (n,)
    by name; ``alive`` (n,), False for rows with a dead end; ``reached`` (n,) the place of the dead
    end; ``weight`` (n,) the probability of the condition so far.
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
        """Mark rows (n,) that have a dead end at a place."""
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
