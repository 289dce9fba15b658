"""The search for the view list of least total size: descent by exchanges, from several starts.

Where the paper (algorithm 3) draws partitions at random and keeps the best, every start here is
improved by exchanging two attributes of different base views as long as that makes the list
smaller. The first start deals the attributes out by size; others are random. The search ends when
several starts in a row bring nothing, or at a number of trials.

Source: Lin, Yu, Huang, "DPView", algorithm 3 and definition 7; all inputs are public.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cloister.models.dpview.views import Sizes, ViewList, add_cross_views, ordered_base

_PATIENCE = 6
"""Random starts in succession without a better list, before the search ends."""

_TRIALS = 6_000
"""Exchanges tried at most, for schemas of up to 29 attributes; fewer for larger ones."""

_LEAST_TRIALS = 500
"""Exchanges tried at most, for the largest schemas."""

_SEED = 20_211_001
"""Public seed of the random starts, the same in every plan."""

_Partition = list[list[str]]


@dataclass
class Search:
    """One search: sizes (levels of each attribute), attributes of a view, trials that are left."""

    sizes: Sizes
    width: int
    trials: int = _TRIALS
    rng: random.Random = field(default_factory=lambda: random.Random(_SEED))  # noqa: S311 - a public choice

    def best(self) -> ViewList:
        """The best list found."""
        best, stale = self._descend(self.dealt()), 0
        while stale < _PATIENCE and self.trials > 0:
            found = self._descend(self._shuffled())
            stale = 0 if self._cost(found) < self._cost(best) else stale + 1
            best = min(best, found, key=self._cost)
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
                found = self._cost(parts)
                if found < cost:
                    cost, fallen = found, True
                else:
                    _swap(parts, *exchange)
                if self.trials <= 0:
                    break
        return parts

    def _exchanges(self, parts: _Partition) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        places = [(part, at) for part, names in enumerate(parts) for at in range(len(names))]
        pairs = [(a, b) for a in places for b in places if a[0] < b[0]]
        self.rng.shuffle(pairs)
        return (pair for pair in pairs if self._differ(parts, *pair))

    def _differ(self, parts: _Partition, first: tuple[int, int], second: tuple[int, int]) -> bool:
        return self.sizes[parts[first[0]][first[1]]] != self.sizes[parts[second[0]][second[1]]]

    def dealt(self) -> _Partition:
        """Attributes by size, dealt out to and fro over the base views."""
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
    """The view list of least total size that was found, for a view size ``width``.

    The number of trials is bounded; large schemas, whose trials take longer, get fewer.
    """
    return Search(
        dict(sizes), width, trials=max(_TRIALS // max(1, len(sizes) // 15), _LEAST_TRIALS)
    ).best()


def dealt_views(sizes: Sizes, width: int) -> ViewList:
    """The list that the search starts from: attributes dealt out by size."""
    search = Search(dict(sizes), width)
    return search.views(search.dealt())
