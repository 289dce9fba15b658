"""Tying attributes together: supports that meet become one factor of the mixture, whose levels keep all of them.

Rows of the mixture then keep the constraints in every component, and the fit makes up for what the supports leave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from cloister.constraints.supports import Int, Support
from models.mixture.products import Factor, Layout, Mixture

MOST_LEVELS = 4_000


def untied(sizes: Mapping[str, int]) -> Layout:
    """The layout in which each attribute is a factor of its own."""
    return Layout(tuple(Factor.single(name, size) for name, size in sizes.items()), dict(sizes))


def tied(sizes: Mapping[str, int], supports: Sequence[Support]) -> Layout | None:
    """The layout whose factors are the supports, joined where they meet, then all other attributes alone.

    None if a support has attributes that are not among those with ``sizes``, or a joint factor would be empty or large.
    """
    factors: list[Factor] = []
    for support in supports:
        joined: Factor | None = Factor(support.attributes, support.levels)
        if not set(sizes).issuperset(support.attributes):
            return None
        for other in [f for f in factors if not set(f.attributes).isdisjoint(support.attributes)]:
            factors.remove(other)
            joined = _joined(other, joined) if joined else None
        if joined is None or not 0 < joined.size <= MOST_LEVELS:
            return None
        factors.append(joined)
    taken = {name for factor in factors for name in factor.attributes}
    alone = [Factor.single(name, size) for name, size in sizes.items() if name not in taken]
    return Layout((*factors, *alone), dict(sizes))


def _joined(first: Factor, second: Factor) -> Factor | None:
    """The joint levels that both factors allow; None if there are too many."""
    shared = [name for name in first.attributes if name in second.attributes]
    left, right = _keys(first, second, shared)
    order = np.argsort(right, kind="stable")
    begin, end = (np.searchsorted(right[order], left, side=side) for side in ("left", "right"))
    counts = end - begin
    if counts.sum() > MOST_LEVELS:
        return None
    of_first = np.repeat(np.arange(len(left)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    of_second = order[np.repeat(begin, counts) + within]
    new = [at for at, name in enumerate(second.attributes) if name not in shared]
    levels = np.hstack([first.levels[of_first], second.levels[of_second][:, new]])
    return Factor((*first.attributes, *(second.attributes[at] for at in new)), levels)


def _keys(first: Factor, second: Factor, shared: Sequence[str]) -> tuple[Int, Int]:
    """A number for the shared levels of each row of both factors."""
    sides = [f.levels[:, [f.attributes.index(name) for name in shared]] for f in (first, second)]
    _, keys = np.unique(np.vstack(sides), axis=0, return_inverse=True)
    return keys.ravel()[: first.size], keys.ravel()[first.size :]


def carried_over(mixture: Mixture, layout: Layout) -> Mixture:
    """The mixture on another layout: inside a component, levels of a factor in proportion to their old product."""
    parts = []
    for factor in layout.factors:
        logs = [mixture.logs(name)[factor.levels[:, at]] for at, name in enumerate(factor.attributes)]
        parts.append(torch.softmax(torch.stack(logs).sum(0), 0))
    return Mixture(layout, mixture.weights, torch.cat(parts))
