"""Tying attributes together: supports that meet become one factor of the mixture, whose levels keep all of them.

Rows of the mixture then keep the constraints in every component, and the fit makes up for what the
supports leave out. What is too large to be tied hangs on the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cloister.arrays import Integers
from cloister.constraints.supports import Support
from models.mixture.dependent import DependentAttribute, without
from models.mixture.products import Factor, Layout, Mixture

MOST_LEVELS = 4_000
MOST_HANGING, MOST_FOLLOWING = 2_000_000, 20_000


@dataclass(frozen=True)
class Arrangement:
    """The layout of a mixture whose factors keep supports, with the attributes that hang on it, in order of drawing."""

    layout: Layout
    hanging: tuple[DependentAttribute, ...] = ()


def untied(sizes: Mapping[str, int]) -> Layout:
    """The layout in which each attribute is a factor of its own."""
    return Layout(tuple(Factor.single(name, size) for name, size in sizes.items()), dict(sizes))


def arranged(
    sizes: Mapping[str, int], inside: Sequence[str], supports: Sequence[Support]
) -> Arrangement | None:
    """Supports tied into factors over the attributes ``inside`` a mixture, and what hangs on them.

    Attributes outside hang; of those inside, one after the other, the largest first, until the rest
    can be tied. None if it never can.
    """
    kept: _Kept | None = _Kept(
        tuple(Factor(support.attributes, support.levels) for support in supports)
    )
    for name in sizes:
        if kept and name not in inside and kept.of(name):
            kept = kept.hung(name, sizes, MOST_HANGING)
    own = {name: sizes[name] for name in inside}
    while kept:
        layout = tied(own, kept.factors)
        if layout:
            return Arrangement(layout, kept.hanging)
        loose = kept.loose(inside)
        kept = kept.hung(max(loose, key=own.__getitem__), sizes, MOST_FOLLOWING) if loose else None
    return None


@dataclass(frozen=True)
class _Kept:
    """Supports, as far as factors keep them, and what hangs on these, in order of drawing."""

    factors: tuple[Factor, ...]
    hanging: tuple[DependentAttribute, ...] = ()

    def of(self, name: str) -> list[Factor]:
        """The factors that speak of an attribute."""
        return [factor for factor in self.factors if name in factor.attributes]

    def loose(self, names: Sequence[str]) -> list[str]:
        """The attributes of which one factor speaks that says something of others too."""
        own = {name: self.of(name) for name in names}
        return [name for name in names if len(own[name]) == 1 and len(own[name][0].attributes) > 1]

    def hung(self, name: str, sizes: Mapping[str, int], most: int) -> _Kept | None:
        """With an attribute taken out of its factors and hung on them.

        None if it goes with too many levels or none.
        """
        own = self.of(name)
        whole: Factor | None = own[0]
        for other in own[1:]:
            whole = _joined(whole, other, most) if whole else None
        if whole is None or not 0 < whole.size <= most:
            return None
        others = tuple(factor for factor in self.factors if name not in factor.attributes)
        rest = without(name, whole)
        left = _absorbed(rest, others) if rest.attributes else others
        return _Kept(left, (DependentAttribute.of(name, whole, sizes), *self.hanging))


def _absorbed(rest: Factor, factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """The factors and one more, which only filters another that has all its attributes."""
    for at, factor in enumerate(factors):
        filtered = (
            _joined(factor, rest, factor.size)
            if set(rest.attributes) <= set(factor.attributes)
            else None
        )
        if filtered is not None:
            return (*factors[:at], filtered, *factors[at + 1 :])
    return (*factors, rest)


def tied(sizes: Mapping[str, int], supports: Sequence[Factor]) -> Layout | None:
    """The layout whose factors are those of supports, joined where they meet, then all other attributes alone.

    None if a joint factor would be empty or large.
    """
    factors: list[Factor] = []
    for support in supports:
        joined: Factor | None = support
        for other in [f for f in factors if not set(f.attributes).isdisjoint(support.attributes)]:
            factors.remove(other)
            joined = _joined(other, joined, MOST_LEVELS) if joined else None
        if joined is None or not 0 < joined.size <= MOST_LEVELS:
            return None
        factors.append(joined)
    taken = {name for factor in factors for name in factor.attributes}
    alone = [Factor.single(name, size) for name, size in sizes.items() if name not in taken]
    return Layout((*factors, *alone), dict(sizes))


def _joined(first: Factor, second: Factor, most: int) -> Factor | None:
    """The joint levels that both factors allow; None if there are more than ``most``."""
    shared = [name for name in first.attributes if name in second.attributes]
    left, right = _keys(first, second, shared)
    order = np.argsort(right, kind="stable")
    begin, end = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    counts = end - begin
    if counts.sum() > most:
        return None
    of_first = np.repeat(np.arange(len(left)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    of_second = order[np.repeat(begin, counts) + within]
    new = [at for at, name in enumerate(second.attributes) if name not in shared]
    levels = np.hstack([first.levels[of_first], second.levels[of_second][:, new]])
    return Factor((*first.attributes, *(second.attributes[at] for at in new)), levels)


def _keys(first: Factor, second: Factor, shared: Sequence[str]) -> tuple[Integers, Integers]:
    """A number for the shared levels of each row of both factors."""
    sides = [f.levels[:, [f.attributes.index(name) for name in shared]] for f in (first, second)]
    _, keys = np.unique(np.vstack(sides), axis=0, return_inverse=True)
    return keys.ravel()[: first.size], keys.ravel()[first.size :]


def carried_over(mixture: Mixture, layout: Layout) -> Mixture:
    """The mixture on another layout: inside a component, levels of a factor in proportion to their old product."""
    parts = []
    for factor in layout.factors:
        logs = [
            mixture.logs(name)[factor.levels[:, at]] for at, name in enumerate(factor.attributes)
        ]
        parts.append(torch.softmax(torch.stack(logs).sum(0), 0))
    return Mixture(layout, mixture.weights, torch.cat(parts))
