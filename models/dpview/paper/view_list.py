"""The view list of the paper: random partitions, of which the smallest is kept.

Source: Lin, Yu, Huang, "DPView", algorithms 1 and 3; all inputs are public.
"""

from __future__ import annotations

import random

from cloister.models.dpview.views import Names, Sizes, ViewList, add_cross_views, ordered_base

_RUNS = 2_000
"""Random partitions at most, x in algorithm 3; the paper prints none."""

_PATIENCE = 500
"""Partitions in succession without a smaller list, before the search ends."""

_SEED = 20_211_002
"""Public seed of the partitions, the same in every plan."""


def random_views(sizes: Sizes, width: int) -> ViewList:
    """The smallest of many random lists in which no cross view exceeds all base views.

    If all have such a cross view, the smallest of these.
    """
    rng = random.Random(_SEED)  # noqa: S311 - a public choice

    def any_of(names: Names, number: int) -> Names:
        return tuple(rng.sample(names, number))

    best: tuple[bool, int] | None = None
    found, stale, names = ViewList(()), 0, sorted(sizes)
    for _ in range(_RUNS):
        rng.shuffle(names)
        parts = [names[begin : begin + width] for begin in range(0, len(names), width)]
        views = add_cross_views(ordered_base(parts, sizes, width), sizes, width, any_of)
        cost = (not views.within_bounds(sizes), views.size(sizes))
        stale += 1
        if best is None or cost < best:
            best, found, stale = cost, views, 0
        if stale > _PATIENCE:
            break
    return found
