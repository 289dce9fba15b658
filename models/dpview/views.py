"""Views: which attributes each joins, from public sizes, and the noisy table of each.

The view list of least total size is found by descent by exchanges, from several starts.

Where the paper (algorithm 3) draws partitions at random and keeps the best, every start here is
improved by exchanging two attributes of different base views as long as that makes the list
smaller. The first start deals the attributes out by size; others are random. The search ends when
several starts in a row bring no improvement, or after a number of trials.

Source: Lin, Yu, Huang, "DPView", algorithm 3 and definition 7; all inputs are public.

Source: Lin, Yu, Huang, "DPView", section IV-C (definitions 5, 6; algorithms 1, 2) and section IV-G
    (definition 8).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

Names = tuple[str, ...]

Sizes = Mapping[str, int]

Filling = Callable[[Names, int], Names]
"""Chooses attributes of a base view that fill up the next."""

_PATIENCE = 6
"""The search ends after this many random starts in a row without a better list."""

_TRIALS = 6_000
"""Most exchanges tried, for schemas of up to 29 attributes; fewer for larger ones."""

_LEAST_TRIALS = 500
"""Most exchanges tried for the largest schemas."""

_SEED = 20_211_001
"""Public seed of the random starts, the same in every plan."""

_Partition = list[list[str]]


def cells(view: Sequence[str], sizes: Sizes) -> int:
    """Number of cells of a view's table."""
    return math.prod(sizes[name] for name in view)


@dataclass(frozen=True)
class ViewList:
    """Base views in their order, the cross view between each and the next, and upper cross views.

    ``cross[i]`` bridges ``base[i]`` and ``base[i + 1]``; it is empty where the last base view was
    filled up from the one before (type III), which bridges them already. ``upper`` is empty in
    DPView, one for each cross view in DPView+.
    """

    base: tuple[Names, ...]
    cross: tuple[Names, ...] = ()
    upper: tuple[Names, ...] = ()

    @cached_property
    def linked(self) -> tuple[Names, ...]:
        """Base and cross views in the order in which records are linked: b1, c1, b2, c2, ...

        What two of them share is in all between.
        """
        crossed = (*self.cross, *((),) * (len(self.base) - len(self.cross)))
        return tuple(view for pair in zip(self.base, crossed, strict=True) for view in pair if view)

    @property
    def referees(self) -> tuple[Names, ...]:
        """The upper cross views that are not empty."""
        return tuple(view for view in self.upper if view)

    @property
    def all(self) -> tuple[Names, ...]:
        """Every view, upper cross views last."""
        return (*self.linked, *self.referees)

    @property
    def sequence(self) -> Names:
        """Every attribute once, in the order of linking."""
        return tuple(dict.fromkeys(name for view in self.linked for name in view))

    def size(self, sizes: Sizes) -> int:
        """Sum of the cells of base and cross views, which the search minimises (definition 7)."""
        return sum(cells(view, sizes) for view in self.linked)

    def within_bounds(self, sizes: Sizes) -> bool:
        """Whether no cross view is larger than all base views (algorithm 3, lines 7 to 10)."""
        largest = max(cells(view, sizes) for view in self.base)
        return all(cells(view, sizes) <= largest for view in self.cross)


def ordered_base(parts: Sequence[Sequence[str]], sizes: Sizes, width: int) -> tuple[Names, ...]:
    """Base views in the order of algorithm 1, line 3: by the product of their largest sizes.

    A short view comes last. The ``width // 2`` largest sizes count, at least one. Attributes of a
    view are in descending order of size.
    """
    views = [tuple(sorted(part, key=lambda name: (-sizes[name], name))) for part in parts]
    full = [view for view in views if len(view) == width]
    short = [view for view in views if len(view) < width]
    half = max(1, width // 2)
    return (*sorted(full, key=lambda view: (-cells(view[:half], sizes), view)), *short)


def smallest(names: Names, number: int) -> Names:
    """The ``number`` smallest of attributes in descending order of size."""
    return names[-number:]


def add_cross_views(
    base: Sequence[Names], sizes: Sizes, width: int, filling: Filling = smallest
) -> ViewList:
    """The view list of ordered base views, with their cross views (algorithm 2).

    The attributes of a view are in descending order of size.

    Type I and II: every two neighbours get a cross view. Type III: a last view of at most half the
    width is filled up from the one before instead, by the ``filling``.
    """
    base = list(base)
    last = len(base) - 1
    filled = last > 0 and 2 * len(base[last]) <= width
    if filled:
        missing = width - len(base[last])
        base[last] = (*base[last], *filling(base[last - 1], missing))
    neighbours = list(pairwise(base))[: -1 if filled else None]
    return ViewList(
        tuple(base), tuple(_cross(first, second, sizes, width) for first, second in neighbours)
    )


def _cross(first: Names, second: Names, sizes: Sizes, width: int) -> Names:
    """High to low: the largest attributes of the first view with the smallest of the second.

    For an odd width, the middle attribute is the second view's next smallest, unless the second
    half would then outweigh the first (algorithm 2, lines 13 to 17).
    """
    half = max(1, width // 2)
    high, low = first[:half], second[-half:]
    if width % 2 == 0 or width == 1:
        return (*high, *low)
    low_rest, high_rest = second[: len(second) - half], first[half:]
    fits = bool(low_rest) and cells(high, sizes) > cells(low, sizes) * sizes[low_rest[-1]]
    middle = low_rest[-1:] if fits else high_rest[-1:]
    return (*high, *low, *middle)


def with_upper(views: ViewList) -> ViewList:
    """The same list with upper cross views: what cross views leave of base views (definition 8)."""
    upper = tuple(
        tuple(name for name in (*first, *second) if name not in cross)
        for first, cross, second in zip(views.base, views.cross, views.base[1:], strict=False)
    )
    return ViewList(views.base, views.cross, upper)


@dataclass
class Search:
    """One search: sizes (levels of each attribute), attributes per view, remaining trials."""

    sizes: Sizes
    width: int
    trials: int = _TRIALS
    rng: random.Random = field(default_factory=lambda: random.Random(_SEED))  # noqa: S311 - a public choice

    def best(self) -> ViewList:
        """The best list found."""
        best, stale = self._descend(self.dealt()), 0
        while stale < _PATIENCE and self.trials > 0:
            candidate = self._descend(self._shuffled())
            stale = 0 if self._cost(candidate) < self._cost(best) else stale + 1
            best = min(best, candidate, key=self._cost)
        return self.views(best)

    def views(self, parts: Sequence[Sequence[str]]) -> ViewList:
        """The view list of a partition into base views."""
        return add_cross_views(ordered_base(parts, self.sizes, self.width), self.sizes, self.width)

    def _cost(self, parts: _Partition) -> tuple[bool, int]:
        views = self.views(parts)
        return not views.within_bounds(self.sizes), views.size(self.sizes)

    def _descend(self, parts: _Partition) -> _Partition:
        """Exchange pairs of attributes as long as the cost falls."""
        cost, fallen = self._cost(parts), True
        while fallen and self.trials > 0:
            fallen = False
            for exchange in self._exchanges(parts):
                self.trials -= 1
                _swap(parts, *exchange)
                changed = self._cost(parts)
                if changed < cost:
                    cost, fallen = changed, True
                else:
                    _swap(parts, *exchange)
                if self.trials <= 0:
                    break
        return parts

    def _exchanges(self, parts: _Partition) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        places = [(part, index) for part, names in enumerate(parts) for index in range(len(names))]
        pairs = [(a, b) for a in places for b in places if a[0] < b[0]]
        self.rng.shuffle(pairs)
        return (pair for pair in pairs if self._differ(parts, *pair))

    def _differ(self, parts: _Partition, first: tuple[int, int], second: tuple[int, int]) -> bool:
        return self.sizes[parts[first[0]][first[1]]] != self.sizes[parts[second[0]][second[1]]]

    def dealt(self) -> _Partition:
        """Attributes by size, dealt back and forth over the base views."""
        ordered = sorted(self.sizes, key=lambda name: (-self.sizes[name], name))
        parts = self._empty()
        turn = list(range(len(parts)))
        while ordered:
            for part in turn:
                if ordered and len(parts[part]) < self._capacity(part):
                    parts[part].append(ordered.pop(0))
            turn.reverse()
        return parts

    def _shuffled(self) -> _Partition:
        names = sorted(self.sizes)
        self.rng.shuffle(names)
        return [names[begin : begin + self.width] for begin in range(0, len(names), self.width)]

    def _empty(self) -> _Partition:
        return [[] for _ in range(-(-len(self.sizes) // self.width))]

    def _capacity(self, part: int) -> int:
        return min(self.width, len(self.sizes) - part * self.width)


def _swap(parts: _Partition, first: tuple[int, int], second: tuple[int, int]) -> None:
    a, b = parts[first[0]], parts[second[0]]
    a[first[1]], b[second[1]] = b[second[1]], a[first[1]]


def best_views(sizes: Sizes, width: int) -> ViewList:
    """The view list of least total size found, for views of ``width`` attributes.

    The number of trials is bounded; large schemas, whose trials take longer, get fewer.
    """
    return Search(
        dict(sizes), width, trials=max(_TRIALS // max(1, len(sizes) // 15), _LEAST_TRIALS)
    ).best()


def dealt_views(sizes: Sizes, width: int) -> ViewList:
    """The list from which the search starts: attributes dealt out by size."""
    search = Search(dict(sizes), width)
    return search.views(search.dealt())
